"""The admin client's arguments and results, with the field names of REST v3, so that their JSON is the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tidelog.model.cluster import Endpoint
from tidelog.transport.addresses import HTTP, base_url
from tidelog.transport.metadata import PartitionVoter, TopicMetadata


class NewTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic to create. Fields of None use the broker's defaults.

    `replicas_assignments` (partition to node ids, the preferred leader first) replaces the two numbers.
    """

    topic_name: str
    partitions_count: int | None = None
    replication_factor: int | None = None
    replicas_assignments: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, str] = msgspec.field(default_factory=dict)


class ReplicaPlacement(msgspec.Struct, frozen=True):
    """The replicas of a partition, the preferred leader first."""

    partition_id: int
    replicas: tuple[int, ...]


class TopicPlacement(msgspec.Struct, frozen=True):
    """A topic and its replicas: as created, as it would be, or existing."""

    topic_name: str
    topic_id: str
    is_internal: bool
    replication_factor: int
    partitions_count: int
    assignments: tuple[ReplicaPlacement, ...]

    @classmethod
    def of(cls, topic: TopicMetadata) -> TopicPlacement:
        """Returns the placement of an existing topic."""
        return cls(
            topic.name,
            topic.topic_id,
            topic.is_internal,
            len(topic.partitions[0].replicas),
            len(topic.partitions),
            tuple(ReplicaPlacement(partition.partition, partition.replicas) for partition in topic.partitions),
        )


class PartitionDescription(msgspec.Struct, frozen=True):
    """The leader and replicas of a partition; `leader` is -1 while there is none. `isr` are in sync; `elr` are not, but
    have all acknowledged records and may lead if no other replica can (KIP-966). In a topic with the protocol paxos,
    `isr` are the live voters and `voters` all voters; the voter of a lost disk is replaced under a new id."""

    partition_id: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    voters: tuple[PartitionVoter, ...]


class TopicDescription(msgspec.Struct, frozen=True):
    """A topic and the state of its partitions; `protocol` is its commit protocol, isr or paxos."""

    topic_name: str
    topic_id: str
    is_internal: bool
    protocol: str
    replication_factor: int
    partitions_count: int
    partitions: tuple[PartitionDescription, ...]

    @classmethod
    def of(cls, topic: TopicMetadata) -> TopicDescription:
        """Returns the description of a topic from the metadata."""
        return cls(
            topic.name,
            topic.topic_id,
            topic.is_internal,
            topic.protocol,
            len(topic.partitions[0].replicas),
            len(topic.partitions),
            tuple(
                PartitionDescription(
                    partition.partition,
                    partition.leader,
                    partition.leader_epoch,
                    partition.replicas,
                    partition.isr,
                    partition.elr,
                    partition.voters,
                )
                for partition in topic.partitions
            ),
        )


class NewAssignment(msgspec.Struct, frozen=True):
    """The new replicas of a partition, the preferred leader first."""

    topic_name: str
    partition_id: int
    replicas: tuple[int, ...]


class ReassignmentDescription(msgspec.Struct, frozen=True):
    """A partition whose replicas are being moved, until all `target_replicas` are in `isr`.

    `throttle_bytes_per_s` bounds all moves of the cluster together, on each broker; None if there is no bound.
    """

    topic_name: str
    partition_id: int
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    target_replicas: tuple[int, ...]
    isr: tuple[int, ...]
    throttle_bytes_per_s: int | None


class FeatureLevels(msgspec.Struct, frozen=True):
    """The lowest and highest feature level that a broker supports, inclusive."""

    lowest: int
    highest: int


class LevelRaised(msgspec.Struct, frozen=True):
    """The cluster's feature level before and after raising it, or as it would be."""

    before: int
    feature_level: int


class BrokerDescription(msgspec.Struct, frozen=True):
    """A registered broker and its HTTP address.

    A fenced broker sends no heartbeats and leads nothing. `broker_epoch` is the offset of its registration in the
    metadata log; `voter_id` is None if it is no voter of that log.
    """

    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool
    is_controller: bool
    broker_epoch: int
    voter_id: int | None
    peer_host: str
    peer_port: int
    feature_levels: FeatureLevels | None = None
    """The supported feature levels; None if the responding broker does not know them."""
    scheme: str = HTTP
    """The scheme that the client uses for the brokers."""
    kafka_host: str | None = None
    """The host of the broker's Kafka listener, with `kafka_port`; None if it has none."""
    kafka_port: int | None = None

    @property
    def address(self) -> str:
        """Returns the broker's base URL."""
        return base_url(self.host, self.port, self.scheme)

    @property
    def kafka_address(self) -> str | None:
        """Returns the address for `bootstrap.servers` of Kafka's clients; None if the broker has no Kafka listener."""
        return None if self.kafka_host is None else str(Endpoint(self.kafka_host, self.kafka_port or 0))


class VoterDescription(msgspec.Struct, frozen=True):
    """A voter of the metadata log, which is a broker's disk, and its address for other brokers."""

    voter_id: int
    broker_id: int
    host: str
    port: int
    is_live: bool


class RecoveryDescription(msgspec.Struct, frozen=True):
    """A recovery by `tidelog cluster recover`, which started a new metadata log from what survived of the old one, up
    to the metadata position `kept_position`. `given_up` lists in sentences what was lost, as far as known."""

    generation: int
    recovery_id: str
    """The id of the recovery; empty if an older version did it."""
    recovered_at_ms: int
    recovered_by: str
    kept_position: int
    given_up: tuple[str, ...]


class ClusterDescription(msgspec.Struct, frozen=True):
    """A cluster: its registered brokers, and the controller's node id (-1 while there is none).

    `controller_epoch` increases with every new controller. `metadata_position` is the position up to which the
    responding broker has applied the metadata log; `recoveries` are the recoveries of that log, oldest first.
    """

    cluster_id: str
    controller_id: int
    controller_epoch: int
    metadata_position: int
    voters: tuple[VoterDescription, ...]
    brokers: tuple[BrokerDescription, ...]
    recoveries: tuple[RecoveryDescription, ...] = ()
    feature_level: int = 1
    """The feature level in which the cluster's metadata are written."""

    @property
    def generation(self) -> int:
        """The number of recoveries of the metadata log."""
        return self.recoveries[-1].generation if self.recoveries else 0


class BrokerState(msgspec.Struct, frozen=True):
    """A broker's report about itself: the applied position of the metadata log, the milliseconds by which its clock is
    ahead of the other brokers' and whether that is too much, and a sentence about each of its listeners that accepts
    unauthenticated clients of other hosts. Older versions report neither clock nor listeners."""

    metadata_position: int
    clock_offset_ms: int | None = None
    clock_is_off: bool = False
    insecure_listeners: tuple[str, ...] = ()


class ConfigSynonym(msgspec.Struct, frozen=True):
    """A possible source of a setting's value."""

    name: str
    value: str | None
    source: str


class ConfigDescription(msgspec.Struct, frozen=True):
    """A setting's effective value and its source (`source`, as in Kafka: `DYNAMIC_TOPIC_CONFIG`, ...)."""

    name: str
    value: str | None
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    source: str
    synonyms: tuple[ConfigSynonym, ...]
