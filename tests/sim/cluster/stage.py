"""A small cluster with clients, to which something is done."""

from __future__ import annotations

from tidelog.sim.cluster.scenario import Order, Scenario, Strike, Swarm
from tidelog.sim.cluster.traffic import ProducerPlan, TopicPlan, Traffic
from tidelog.sim.kit.history import Kind


def scenario(
    *steps: Strike | Order, factor: int = 3, minimum: int = 2, learners: int = 0, **settings_of_topic: str
) -> Scenario:
    """Three brokers, and perhaps some that join them, with one topic; two producers write to it."""
    configs = {"min.insync.replicas": str(minimum), "segment.bytes": "1024"}
    configs |= {name.replace("_", "."): value for name, value in settings_of_topic.items()}
    traffic = Traffic(
        (TopicPlan("data0", 1, factor, configs),),
        (
            ProducerPlan("p0", Kind.IDEMPOTENT, -1, "data0", 0),
            ProducerPlan("p1", Kind.PLAIN, 1, "data0", 0),
        ),
    )
    settings: dict[str, int | str] = {
        "broker.heartbeat.interval.ms": 100,
        "broker.session.timeout.ms": 600,
        "replica.lag.time.max.ms": 500,
    }
    swarm = Swarm(
        voters=3,
        learners=learners,
        chaos_s=3.0,
        delay_min_s=0.002,
        delay_mean_s=0.004,
        disk_delay_s=0.004,
        clock_drift=0.0,
        settings=settings,
        traffic=traffic,
    )
    return Scenario(1, swarm, steps)
