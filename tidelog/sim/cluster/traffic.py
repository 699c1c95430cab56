"""The topics and producers of a cluster's data in one run."""

from __future__ import annotations

import random
from collections.abc import Iterator
from enum import StrEnum

import msgspec
from msgspec import structs

from tidelog.model.cluster import COMMIT_ORDER, COMMIT_PROTOCOL, ISR, PAXOS, TOTAL
from tidelog.sim.kit.history import Kind
from tidelog.sim.kit.seeds import stream

DATA = "data"
"""Prefix of the names of topics with data, which the administrators of other topics leave alone."""
TWIN = "t"
DURABILITY = "ack.durability"
UNCLEAN = "unclean.leader.election.enable"
SHARE = 0.7
"""Share of the seeds that have topics with data."""


class Mix(StrEnum):
    """Commit protocols of the topics of one run."""

    ISR = ISR
    PAXOS = PAXOS
    MIXED = "mixed"
    """At least one topic with each protocol."""


MIXES: dict[Mix, float] = {Mix.ISR: 2.0, Mix.PAXOS: 1.0, Mix.MIXED: 1.0}
"""Mixes with their weights, where none is chosen by an option."""


SESSIONS: tuple[dict[str, int], ...] = (
    {},
    {"broker.heartbeat.interval.ms": 100, "broker.session.timeout.ms": 400},
    {"broker.heartbeat.interval.ms": 100, "broker.session.timeout.ms": 800},
)
"""Settings of the broker session, which decide how soon a silent leader is replaced."""


class TopicPlan(msgspec.Struct, frozen=True):
    """Plan of a topic; with fewer live brokers than `factor` it is created with that many replicas."""

    name: str
    partitions: int
    factor: int
    configs: dict[str, str] = {}
    changes_durability: bool = False
    """True if administrators may change `ack.durability`."""

    @property
    def protocol(self) -> str:
        return self.configs.get(COMMIT_PROTOCOL, ISR)

    @property
    def is_paxos(self) -> bool:
        return self.protocol == PAXOS

    @property
    def order(self) -> str:
        """The topic's `commit.order`."""
        return self.configs.get(COMMIT_ORDER, TOTAL)

    @property
    def is_lossy(self) -> bool:
        """True if acknowledged records may be lost, with a broker's memory or by an unclean election."""
        is_volatile = self.changes_durability or self.configs.get(DURABILITY) == "replicated"
        return is_volatile or self.allows_unclean

    @property
    def allows_unclean(self) -> bool:
        """True if an unclean election may happen; with Paxos, the setting has no effect."""
        return self.configs.get(UNCLEAN) == "true" and not self.is_paxos


class ProducerPlan(msgspec.Struct, frozen=True):
    """Plan of a client that writes to one partition."""

    name: str
    kind: Kind
    acks: int
    topic: str
    partition: int
    keys: int = 0
    """The number of keys that its records have; 0 if they have none."""


class Traffic(msgspec.Struct, frozen=True):
    """All topics with data and their producers in one run."""

    topics: tuple[TopicPlan, ...] = ()
    producers: tuple[ProducerPlan, ...] = ()
    tunes: bool = False
    """True if an administrator changes `min.insync.replicas` now and then."""


def draw_traffic(seed: int, brokers: int) -> Traffic:
    """Draws the topics and producers of a seed; none for some seeds."""
    rng = stream(seed, "traffic")
    if rng.random() >= SHARE:
        return Traffic()
    topics = tuple(_draw_topic(rng, f"{DATA}{number}", brokers) for number in range(rng.choice((1, 1, 2))))
    producers = tuple(_draw_producer(rng, f"p{number}", topics) for number in range(rng.randint(2, 5)))
    return Traffic(topics, producers, rng.random() < 0.3)


def draw_mix(seed: int) -> Mix:
    """Draws the mix of commit protocols of a seed, if no option chooses it."""
    return stream(seed, "mix").choices(list(MIXES), list(MIXES.values()))[0]


def mixed(seed: int, traffic: Traffic, mix: Mix) -> Traffic:
    """Returns the same topics and producers with the commit protocols of `mix`. If both protocols are wanted and there
    is one topic, it gets a twin with the other protocol, and so do its producers."""
    if mix is Mix.ISR or not traffic.topics:
        return traffic
    if mix is Mix.PAXOS:
        return structs.replace(traffic, topics=tuple(map(by_majority, traffic.topics)))
    first, *others = traffic.topics
    if others:
        pair = (first, by_majority(others[0]), *others[1:])
        if stream(seed, "mixed").random() < 0.5:
            pair = (by_majority(first), *others)
        return structs.replace(traffic, topics=pair)
    twin = structs.replace(first, name=f"{first.name}{TWIN}")
    producers = (*traffic.producers, *_twins(traffic.producers))
    return structs.replace(traffic, topics=(first, by_majority(twin)), producers=producers)


def by_majority(topic: TopicPlan) -> TopicPlan:
    """Returns the topic with the commit protocol Paxos."""
    return structs.replace(topic, configs={**topic.configs, COMMIT_PROTOCOL: PAXOS})


def _twins(producers: tuple[ProducerPlan, ...]) -> Iterator[ProducerPlan]:
    for plan in producers:
        yield structs.replace(plan, name=f"{plan.name}{TWIN}", topic=f"{plan.topic}{TWIN}")


def draw_settings(seed: int) -> dict[str, int | str]:
    """Draws broker settings that concern data."""
    rng = stream(seed, "traffic settings")
    return {
        **rng.choice(SESSIONS),
        "replica.lag.time.max.ms": rng.choice((300, 1_000, 5_000)),
        "log.retention.check.interval.ms": rng.choice((500, 2_000)),
        "log.scrub.period.ms": rng.choice((3_000, 600_000)),
        "paxos.journal.max.entries": rng.choice((8, 40, 40, 20_000)),
    }


def _draw_topic(rng: random.Random, name: str, brokers: int) -> TopicPlan:
    factor = min(brokers, rng.choice((1, 2, 2, 3, 3, 3)))
    configs = {"segment.bytes": str(rng.choice((1_024, 1_024, 3_000, 20_000)))}
    if rng.random() < 0.3:
        configs[DURABILITY] = "replicated"
    if rng.random() < 0.15:
        configs[UNCLEAN] = "true"
    if rng.random() < 0.7:
        configs["min.insync.replicas"] = str(rng.randint(1, factor))
    if rng.random() < 0.15:
        configs["retention.bytes"] = str(rng.choice((0, 5_000)))
    return TopicPlan(name, rng.choice((1, 1, 2)), factor, configs, changes_durability=rng.random() < 0.15)


def _draw_producer(rng: random.Random, name: str, topics: tuple[TopicPlan, ...]) -> ProducerPlan:
    kind = rng.choice((Kind.IDEMPOTENT, Kind.IDEMPOTENT, Kind.PLAIN, Kind.KEYED))
    acks = rng.choice((-1, -1, 1, 0) if kind is Kind.PLAIN else (-1, -1, -1, 1))
    topic = rng.choice(topics)
    return ProducerPlan(name, kind, acks, topic.name, rng.randrange(topic.partitions))
