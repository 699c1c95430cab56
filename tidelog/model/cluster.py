"""The cluster as a broker knows it: an immutable image, replaced whole when a metadata record is applied.

Kafka's MetadataImage. Readers take the image once and see one consistent state, whatever is applied meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tidelog.model.ids import NodeId, TopicId

NO_LEADER = NodeId(-1)


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A registered broker; `epoch` is its registration's place in the metadata log, `incarnation` its process's."""

    node_id: NodeId
    host: str
    port: int
    rack: str | None
    epoch: int
    incarnation: str


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """Who holds a partition. `replicas[0]` is the preferred leader; `isr` is a subset of `replicas`, in their order."""

    partition: int
    leader: NodeId
    leader_epoch: int
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic. `configs` holds the overrides only; `partitions` are in order of their numbers."""

    name: str
    topic_id: TopicId
    configs: Mapping[str, str]
    partitions: tuple[PartitionInfo, ...]

    @property
    def is_internal(self) -> bool:
        """Made by the brokers for themselves."""
        return self.name.startswith("__")


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """The result of applying the metadata log up to `position` (exclusive)."""

    cluster_id: str
    position: int = 0
    controller_id: NodeId = NO_LEADER
    brokers: Mapping[NodeId, BrokerInfo] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, Topic] = field(default_factory=lambda: MappingProxyType({}))
    deleted_topics: tuple[TopicId, ...] = ()
    """Topics that the log says are gone: the only directories that a broker may ever remove."""
    next_producer_id: int = 0
