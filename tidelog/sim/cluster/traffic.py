"""What clients do to a cluster's data in one run: the topics they write to, and who writes."""

from __future__ import annotations

import random

import msgspec

from tidelog.sim.history import Kind
from tidelog.sim.seeds import stream

DATA = "data"
"""Names of topics with data begin so; administrators leave them alone."""
DURABILITY = "ack.durability"
UNCLEAN = "unclean.leader.election.enable"
SHARE = 0.7
"""Of the seeds, those with clients."""


SESSIONS: tuple[dict[str, int], ...] = (
    {},
    {"broker.heartbeat.interval.ms": 100, "broker.session.timeout.ms": 400},
    {"broker.heartbeat.interval.ms": 100, "broker.session.timeout.ms": 800},
)
"""How soon a leader that is not heard of is replaced."""


class TopicPlan(msgspec.Struct, frozen=True):
    """A topic; with fewer live brokers than `factor` it is created on those that there are."""

    name: str
    partitions: int
    factor: int
    configs: dict[str, str] = {}
    changes_durability: bool = False
    """Administrators may set it to the other."""

    @property
    def is_lossy(self) -> bool:
        """Something that was acknowledged may be lost with what memory held, or by a leader that was not in sync."""
        is_volatile = self.changes_durability or self.configs.get(DURABILITY) == "replicated"
        return is_volatile or self.configs.get(UNCLEAN) == "true"


class ProducerPlan(msgspec.Struct, frozen=True):
    """A client that writes to one partition."""

    name: str
    kind: Kind
    acks: int
    topic: str
    partition: int


class Traffic(msgspec.Struct, frozen=True):
    """All of one run."""

    topics: tuple[TopicPlan, ...] = ()
    producers: tuple[ProducerPlan, ...] = ()
    tunes: bool = False
    """Somebody changes `min.insync.replicas` now and then."""


def draw_traffic(seed: int, brokers: int) -> Traffic:
    """The traffic of a seed; none in some."""
    rng = stream(seed, "traffic")
    if rng.random() >= SHARE:
        return Traffic()
    topics = tuple(_draw_topic(rng, f"{DATA}{number}", brokers) for number in range(rng.choice((1, 1, 2))))
    producers = tuple(_draw_producer(rng, f"p{number}", topics) for number in range(rng.randint(2, 5)))
    return Traffic(topics, producers, rng.random() < 0.3)


def draw_settings(seed: int) -> dict[str, int | str]:
    """Settings of the brokers that change what happens to data."""
    rng = stream(seed, "traffic settings")
    return {
        **rng.choice(SESSIONS),
        "replica.lag.time.max.ms": rng.choice((300, 1_000, 5_000)),
        "log.retention.check.interval.ms": rng.choice((500, 2_000)),
        "log.scrub.period.ms": rng.choice((3_000, 600_000)),
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
