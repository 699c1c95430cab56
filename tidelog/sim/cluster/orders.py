"""Topics in which commits do not wait for all before them (`commit.order=key` or `none`), among those of a run.

Their records have few keys and several writers, so that batches conflict, and brokers have several connections to each
other, of which single ones break or stall: without that, the values of a log rarely arrive with a hole. All of it is
drawn from random streams of its own, so the rest of a seed is the same run with and without it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import structs

from tidelog.model.cluster import COMMIT_ORDER, KEY, NONE, TOTAL
from tidelog.sim.cluster.families import Family
from tidelog.sim.cluster.scenario import Swarm
from tidelog.sim.cluster.traffic import ProducerPlan, TopicPlan
from tidelog.sim.kit.history import Kind
from tidelog.sim.kit.seeds import stream

SHARE: Final = 0.4
"""Share of the Paxos topics that do not have total order."""
HOLES: Final = (Family.LANES, Family.HOLES)
ORDERS: Final = (KEY, KEY, NONE)
SPANS: Final = (None, None, None, 2, 6, 16)
"""Values of `commit.hole.span`; None for the default."""
KEYS: Final = (1, 2, 4)
"""Numbers of distinct keys of a producer's records."""


def with_orders(seed: int, swarm: Swarm, share: float = SHARE) -> Swarm:
    """Returns the parameters with orders for this share of the Paxos topics, and with keys for the records of these and
    more producers."""
    rng = stream(seed, "orders")
    traffic = swarm.traffic
    topics = tuple(_draw_order(rng, topic, share) for topic in traffic.topics)
    free = [topic for topic in topics if topic.order != TOTAL]
    if not free:
        return swarm
    names = {topic.name for topic in free}
    producers = tuple(
        structs.replace(plan, keys=rng.choice(KEYS)) if plan.topic in names else plan for plan in traffic.producers
    )
    more = tuple(plan for topic in free for plan in _draw_producers(rng, topic))
    return structs.replace(swarm, traffic=structs.replace(traffic, topics=topics, producers=(*producers, *more)))


def with_holes(swarm: Swarm, families: Sequence[Family]) -> tuple[Family, ...]:
    """Returns these families of faults, with those that make holes if a topic does not have total order."""
    is_free = any(topic.order != TOTAL for topic in swarm.traffic.topics)
    return tuple(dict.fromkeys((*families, *HOLES))) if is_free else (*families,)


def _draw_order(rng: random.Random, topic: TopicPlan, share: float) -> TopicPlan:
    if not topic.is_paxos or rng.random() >= share:
        return topic
    configs = {**topic.configs, COMMIT_ORDER: rng.choice(ORDERS)}
    span = rng.choice(SPANS)
    return structs.replace(topic, configs=configs if span is None else configs | {"commit.hole.span": str(span)})


def _draw_producers(rng: random.Random, topic: TopicPlan) -> Iterator[ProducerPlan]:
    for partition in range(topic.partitions):
        for number in range(rng.choice((1, 2, 3))):
            kind = rng.choice((Kind.IDEMPOTENT, Kind.PLAIN))
            yield ProducerPlan(f"{topic.name}o{partition}.{number}", kind, -1, topic.name, partition, rng.choice(KEYS))
