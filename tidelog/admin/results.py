"""What the admin client takes and gives. Field names are those of REST v3, so that JSON made of them reads the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tidelog.transport.metadata import BrokerMetadata, ClusterMetadata, TopicMetadata


class NewTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic to create. What is None is the broker's choice.

    `replicas_assignments` (partition to node ids, the preferred leader first) stands instead of the two numbers.
    """

    topic_name: str
    partitions_count: int | None = None
    replication_factor: int | None = None
    replicas_assignments: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, str] = msgspec.field(default_factory=dict)


class ReplicaPlacement(msgspec.Struct, frozen=True):
    """Where a partition's replicas are, the preferred leader first."""

    partition_id: int
    replicas: tuple[int, ...]


class TopicPlacement(msgspec.Struct, frozen=True):
    """A topic as it was, or would be, created."""

    topic_name: str
    topic_id: str
    is_internal: bool
    replication_factor: int
    partitions_count: int
    partitions: tuple[ReplicaPlacement, ...]


class PartitionDescription(msgspec.Struct, frozen=True):
    """Who holds a partition; `leader` is -1 while there is none."""

    partition_id: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class TopicDescription(msgspec.Struct, frozen=True):
    """A topic and the state of its partitions; `protocol` is how they commit."""

    topic_name: str
    topic_id: str
    is_internal: bool
    protocol: str
    replication_factor: int
    partitions_count: int
    partitions: tuple[PartitionDescription, ...]

    @classmethod
    def of(cls, topic: TopicMetadata) -> TopicDescription:
        """From the metadata."""
        return cls(
            topic.name,
            topic.topic_id,
            topic.is_internal,
            topic.protocol,
            len(topic.partitions[0].replicas),
            len(topic.partitions),
            tuple(
                PartitionDescription(found.partition, found.leader, found.leader_epoch, found.replicas, found.isr)
                for found in topic.partitions
            ),
        )


class BrokerDescription(msgspec.Struct, frozen=True):
    """A live broker and its HTTP address."""

    broker_id: int
    host: str
    port: int
    rack: str | None

    @classmethod
    def of(cls, broker: BrokerMetadata) -> BrokerDescription:
        """From the metadata."""
        return cls(broker.node_id, broker.host, broker.port, broker.rack)


class ClusterDescription(msgspec.Struct, frozen=True):
    """A cluster: its live brokers, and which of them is the controller (-1 while there is none)."""

    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerDescription, ...]

    @classmethod
    def of(cls, cluster: ClusterMetadata) -> ClusterDescription:
        """From the metadata."""
        brokers = tuple(map(BrokerDescription.of, cluster.brokers))
        return cls(cluster.cluster_id, cluster.controller_id, brokers)


class ConfigSynonym(msgspec.Struct, frozen=True):
    """One place that could decide a setting's value."""

    name: str
    value: str | None
    source: str


class ConfigDescription(msgspec.Struct, frozen=True):
    """A setting in force, and where it comes from (`source`, as in Kafka: `DYNAMIC_TOPIC_CONFIG`, ...)."""

    name: str
    value: str | None
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    source: str
    synonyms: tuple[ConfigSynonym, ...]
