"""The metadata that a client has of its cluster: the brokers, and the leader of each partition (`GET /metadata`).

A cache of answers, never of wishes: an entry is used until it is `metadata_max_age_s` old or an error says that it
is wrong. It may be stale at any time, and staleness costs a hop or a retry, never correctness, because every broker
judges for itself what it leads and forwards what it does not.

Pure: the time is an argument.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec

from tidelog.model.errors import LeaderNotAvailable, UnknownPartition, UnknownTopic
from tidelog.transport.addresses import HTTP, base_url


class BrokerMetadata(msgspec.Struct, frozen=True):
    """A live broker and where its HTTP listener is."""

    node_id: int
    host: str
    port: int
    rack: str | None = None
    scheme: str = HTTP
    """The scheme of the client that asked (`with_scheme`): brokers do not tell theirs."""

    @property
    def address(self) -> str:
        """The broker's base URL."""
        return base_url(self.host, self.port, self.scheme)


class PartitionVoter(msgspec.Struct, frozen=True):
    """A broker's disk that votes in a partition's log; the id is this disk's for ever."""

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
    """Not in sync, but holding everything acknowledged (KIP-966). A broker of an older version does not tell."""
    voters: tuple[PartitionVoter, ...] = ()
    """The voters of a partition that commits by majority; else empty."""


class TopicMetadata(msgspec.Struct, frozen=True):
    """A topic; `partitions` are in order of their numbers, without gaps."""

    name: str
    topic_id: str
    protocol: str
    is_internal: bool
    partitions: tuple[PartitionMetadata, ...]


class ClusterMetadata(msgspec.Struct, frozen=True):
    """The answer of `GET /metadata`: all brokers, and the topics that were asked for and exist."""

    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerMetadata, ...]
    topics: tuple[TopicMetadata, ...]


def with_scheme(answer: ClusterMetadata, scheme: str) -> ClusterMetadata:
    """Returns the answer for a client that speaks this scheme to all brokers."""
    if scheme == HTTP:
        return answer
    brokers = tuple(msgspec.structs.replace(broker, scheme=scheme) for broker in answer.brokers)
    return msgspec.structs.replace(answer, brokers=brokers)


@dataclass(frozen=True, slots=True)
class _Entry:
    topic: TopicMetadata
    fetched_s: float


class MetadataCache:
    """The newest answers, by topic."""

    def __init__(self, *, max_age_s: float) -> None:
        self._max_age_s = max_age_s
        self._brokers: dict[int, BrokerMetadata] = {}
        self._topics: dict[str, _Entry] = {}

    def apply(self, answer: ClusterMetadata, asked: tuple[str, ...], now_s: float) -> None:
        """Takes an answer in; topics that were asked for and are not in it do not exist."""
        self._brokers = {broker.node_id: broker for broker in answer.brokers}
        for name in asked:
            self._topics.pop(name, None)
        for topic in answer.topics:
            self._topics[topic.name] = _Entry(topic, now_s)

    def topic(self, name: str) -> TopicMetadata | None:
        """Returns the metadata of a topic, fresh or not; None if it is not known."""
        entry = self._topics.get(name)
        return None if entry is None else entry.topic

    def is_fresh(self, name: str, now_s: float) -> bool:
        """Returns True if the topic is known and its entry is young."""
        entry = self._topics.get(name)
        return entry is not None and now_s - entry.fetched_s < self._max_age_s

    def invalidate(self, name: str) -> None:
        """Marks a topic's entry as stale; it serves until there is a better one."""
        entry = self._topics.get(name)
        if entry is not None:
            self._topics[name] = _Entry(entry.topic, -math.inf)

    def is_led_since(self, name: str, partition: int, leader_epoch: int) -> bool:
        """Returns True if the partition's leader is known, of this epoch or a later one; or if nothing is known of
        it."""
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
        """Returns the base URL of a broker; None if there is no such live one."""
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
