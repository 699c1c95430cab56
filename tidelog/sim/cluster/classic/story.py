"""Draws the scenario of a seed about a classic group: three brokers, one group, and faults that mostly hit the broker
that coordinates it."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tidelog.model.cluster import ISR, PAXOS
from tidelog.sim.cluster.group_traffic import GroupTraffic, Mishap
from tidelog.sim.cluster.scenario import Scenario, Step, Strike, Swarm
from tidelog.sim.groups.plan import MISHAPS, GroupPlan, Seat
from tidelog.sim.kit.seeds import stream

BROKERS = 3
CHAOS_S = (3.0, 5.0, 7.0)
DEATH = "death at a sync"
DEATH_SHARE = 0.4
"""Share of the scenarios in which the coordinator dies in the moment in which a member is told its assignment."""
RATES = (0.0, 0.0, 0.02, 0.1)
AT_COORDINATOR: dict[str, float] = {
    "leader dies": 4.0,
    "leader sleeps": 3.0,
    "leader without followers": 2.0,
    "leader without controller": 3.0,
    "last one leaves": 1.0,
}
"""Names of faults that hit the coordinator's broker, with their weights: the offsets topic is the only one that
`RoleStrikes` looks at in these scenarios."""
ANYWHERE: dict[str, float] = {
    "crash": 1.0,
    "kill": 1.0,
    "stop": 2.0,
    "pause": 1.0,
    "isolate": 1.0,
    "split": 1.0,
    "cut one way": 1.0,
    "lose answers": 1.0,
    "slow network": 1.0,
    "power cut of all": 2.0,
    "wipe": 2.0,
    "controller dies": 1.0,
    "slow disk": 1.0,
}
"""Names of faults of any broker, with their weights."""
STRIKES = AT_COORDINATOR | ANYWHERE


def draw_classic(seed: int) -> Scenario:
    """Returns the scenario of a seed; the same in every process."""
    rng = stream(seed, "story of a classic group")
    swarm = _draw_swarm(rng, chaos_s=rng.choice(CHAOS_S))
    steps: list[Step] = [*_draw_strikes(rng, swarm), *_draw_mishaps(rng, swarm.chaos_s)]
    steps += _draw_deaths(stream(seed, DEATH), swarm.chaos_s)
    return Scenario(seed, swarm, tuple(sorted(steps, key=lambda step: step.at_s)))


def _draw_swarm(rng: random.Random, chaos_s: float) -> Swarm:
    plan = _draw_plan(rng)
    return Swarm(
        voters=BROKERS,
        learners=0,
        chaos_s=chaos_s,
        delay_min_s=0.0,
        delay_mean_s=rng.choice((0.0005, 0.002, 0.01)),
        disk_delay_s=rng.choice((0.0005, 0.002, 0.01)),
        clock_drift=rng.choice((0.0, 0.0, 0.01)),
        restart_s=rng.choice((0.01, 0.1)),
        settings={
            "broker.heartbeat.interval.ms": 100,
            "broker.session.timeout.ms": rng.choice((400, 800, 1_500)),
            "replica.lag.time.max.ms": rng.choice((300, 1_000)),
            "metadata.log.snapshot.records": rng.choice((20, 1_000)),
            "log.segment.bytes": rng.choice((1_024, 1 << 20)),
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": rng.choice((1, 2, 3, 3, 3)),
            "offsets.topic.commit.protocol": rng.choice((ISR, PAXOS)),
            "group.min.session.timeout.ms": 300,
            "group.initial.rebalance.delay.ms": plan.initial_delay_ms,
        },
        groups=GroupTraffic(copied_from_records=rng.choice((30, 100, 20_000)), copied_at_once=rng.choice((1, 5, 500))),
        classic=plan,
    )


def _draw_plan(rng: random.Random) -> GroupPlan:
    static_rate = rng.choice((0.0, 0.3, 1.0))
    seats = tuple(
        Seat(
            instance_id=f"i{number}" if rng.random() < static_rate else None,
            joins_s=round(rng.choice((0.0, 0.5, 2.0)) * rng.random(), 4),
            beats_every_s=rng.choice((0.1, 0.25)),
            can_skip_assignment=rng.random() < 0.5,
        )
        for number in range(rng.choice((1, 2, 3, 4)))
    )
    return GroupPlan(
        seats=seats,
        partitions=rng.choice((1, 3, 6)),
        session_s=rng.choice((1.0, 2.0)),
        rebalance_s=rng.choice((0.5, 1.0, 2.0)),
        initial_delay_ms=rng.choice((0, 0, 300)),
        late_rate=rng.choice(RATES),
    )


def _draw_strikes(rng: random.Random, swarm: Swarm) -> Iterator[Strike]:
    kinds = rng.sample(sorted(STRIKES), rng.choice((1, 2, 3, 4)))
    if not set(kinds) & set(AT_COORDINATOR):
        kinds.append(rng.choice(sorted(AT_COORDINATOR)))
    weights = [STRIKES[kind] for kind in kinds]
    for _ in range(rng.randint(1, 6)):
        yield Strike(
            at_s=round(rng.uniform(0.5, swarm.chaos_s), 4),
            kind=rng.choices(kinds, weights)[0],
            nodes=tuple(rng.sample(swarm.nodes, rng.choice((1, 1, 2)))),
            lasts_s=round(rng.choice((0.05, 0.5, 1.5)) * rng.uniform(0.5, 1.5), 4),
            amount=round(rng.random(), 4),
        )


def _draw_deaths(rng: random.Random, chaos_s: float) -> Iterator[Mishap]:
    """Draws deaths of the coordinator in the moment in which a member is told its assignment, with a member that leaves
    before, so that there is a rebalance."""
    if rng.random() < DEATH_SHARE:
        for _ in range(rng.randint(1, 3)):
            at_s = round(rng.uniform(1.0, chaos_s), 4)
            yield Mishap(at_s, "leave", 0, rng.randrange(4), 0.0, 0.0)
            yield Mishap(at_s, DEATH, 0, 0, round(rng.uniform(0.1, 1.0), 4), 0.0)


def _draw_mishaps(rng: random.Random, chaos_s: float) -> Iterator[Mishap]:
    for _ in range(rng.choice((0, 1, 3, 6))):
        yield Mishap(
            at_s=round(rng.uniform(0.3, chaos_s), 4),
            kind=rng.choice(MISHAPS),
            group=0,
            member=rng.randrange(4),
            lasts_s=0.0,
            amount=round(rng.random(), 4),
        )
