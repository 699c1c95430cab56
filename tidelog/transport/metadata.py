"""A client's cached metadata: the brokers, and the leader of each partition (`GET /metadata`).

An entry is used until it is `metadata_max_age_s` old or an error contradicts it. Stale metadata costs a hop or a retry,
never correctness, because each broker itself knows which partitions it leads and forwards requests for the others.

Pure: the time is an argument.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec

from tidelog.model.errors import LeaderNotAvailable, UnknownPartition, UnknownTopic
from tidelog.transport.addresses import HTTP, base_url


class BrokerMetadata(msgspec.Struct, frozen=True):
    """A live broker and the address of its HTTP listener."""

    node_id: int
    host: str
    port: int
    rack: str | None = None
    scheme: str = HTTP
    """`http` or `https`: the scheme that the client uses for all brokers (`with_scheme`). It is not part of a broker's
    response."""

    @property
    def address(self) -> str:
        """The broker's base URL."""
        return base_url(self.host, self.port, self.scheme)


class PartitionVoter(msgspec.Struct, frozen=True):
    """One voter of a partition's Paxos group: a log directory of a broker, with a permanent id."""

    broker_id: int
    voter_id: int


class PartitionMetadata(msgspec.Struct, frozen=True):
    """The leader and replicas of a partition; `leader` is -1 while there is none."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    """Ids of brokers that are not in the ISR but have all acknowledged records (KIP-966, eligible leader replicas).
    Empty from a broker of an older version."""
    voters: tuple[PartitionVoter, ...] = ()
    """The voters of a partition that commits by majority; empty for other partitions."""


class TopicMetadata(msgspec.Struct, frozen=True):
    """A topic and its partitions, in the order of their numbers and without gaps."""

    name: str
    topic_id: str
    protocol: str
    is_internal: bool
    partitions: tuple[PartitionMetadata, ...]
    commit_order: str = "total"
    """The topic's setting `commit.order`; `total` from a broker of an older version."""


class ClusterMetadata(msgspec.Struct, frozen=True):
    """The response to `GET /metadata`: all brokers, and those of the requested topics that exist."""

    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerMetadata, ...]
    topics: tuple[TopicMetadata, ...]


def with_scheme(answer: ClusterMetadata, scheme: str) -> ClusterMetadata:
    """Returns the metadata with `scheme` set in all brokers."""
    if scheme == HTTP:
        return answer
    brokers = tuple(msgspec.structs.replace(broker, scheme=scheme) for broker in answer.brokers)
    return msgspec.structs.replace(answer, brokers=brokers)


@dataclass(frozen=True, slots=True)
class _Entry:
    topic: TopicMetadata
    fetched_s: float


class MetadataCache:
    """The latest metadata of each topic."""

    def __init__(self, *, max_age_s: float) -> None:
        self._max_age_s = max_age_s
        self._brokers: dict[int, BrokerMetadata] = {}
        self._topics: dict[str, _Entry] = {}

    def apply(self, answer: ClusterMetadata, requested: tuple[str, ...], now_s: float) -> None:
        """Stores a response; `requested` topics that it does not contain are removed as nonexistent."""
        self._brokers = {broker.node_id: broker for broker in answer.brokers}
        for name in requested:
            self._topics.pop(name, None)
        for topic in answer.topics:
            self._topics[topic.name] = _Entry(topic, now_s)

    def topic(self, name: str) -> TopicMetadata | None:
        """Returns the metadata of a topic, fresh or stale; None if the topic is unknown."""
        entry = self._topics.get(name)
        return None if entry is None else entry.topic

    def is_fresh(self, name: str, now_s: float) -> bool:
        """Returns True if the topic is known and its entry is neither too old nor invalidated."""
        entry = self._topics.get(name)
        return entry is not None and now_s - entry.fetched_s < self._max_age_s

    def invalidate(self, name: str) -> None:
        """Marks a topic's entry as stale; it is used until newer metadata arrives."""
        entry = self._topics.get(name)
        if entry is not None:
            self._topics[name] = _Entry(entry.topic, -math.inf)

    def is_led_since(self, name: str, partition: int, leader_epoch: int) -> bool:
        """Returns True if the partition's known leader has this leader epoch or a later one, or if nothing is known
        about the partition."""
        entry = self._topics.get(name)
        if entry is None or not 0 <= partition < len(entry.topic.partitions):
            return True
        return entry.topic.partitions[partition].leader_epoch >= leader_epoch

    def fetched_since(self, name: str, moment_s: float) -> bool:
        """Returns True if the topic's entry was fetched at `moment_s` or later."""
        entry = self._topics.get(name)
        return entry is not None and entry.fetched_s >= moment_s

    def addresses(self) -> list[str]:
        """Returns the base URLs of all brokers known."""
        return [broker.address for broker in self._brokers.values()]

    def broker_address(self, node_id: int) -> str | None:
        """Returns the base URL of a broker; None if no live broker has this id."""
        broker = self._brokers.get(node_id)
        return None if broker is None else broker.address

    def leader_address(self, topic: str, partition: int) -> str:
        """Returns the base URL of a partition's leader. Raises `UnknownTopic`, `UnknownPartition`,
        `LeaderNotAvailable`."""
        entry = self._topics.get(topic)
        if entry is None:
            raise UnknownTopic(f"topic {topic!r} does not exist")
        if not 0 <= partition < len(entry.topic.partitions):
            raise UnknownPartition(f"topic {topic!r} has {len(entry.topic.partitions)} partitions, and no {partition}")
        leader = self._brokers.get(entry.topic.partitions[partition].leader)
        if leader is None:
            raise LeaderNotAvailable(f"partition {topic}-{partition} has no leader at the moment")
        return leader.address
