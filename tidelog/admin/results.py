"""The admin client's arguments and results. Field names are those of REST v3, so that JSON made of them reads the
same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tidelog.model.cluster import Endpoint
from tidelog.transport.addresses import HTTP, base_url
from tidelog.transport.metadata import PartitionVoter, TopicMetadata


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
    """The replicas of a partition, the preferred leader first."""

    partition_id: int
    replicas: tuple[int, ...]


class TopicPlacement(msgspec.Struct, frozen=True):
    """A topic as it was, or would be, created, or as it is."""

    topic_name: str
    topic_id: str
    is_internal: bool
    replication_factor: int
    partitions_count: int
    assignments: tuple[ReplicaPlacement, ...]

    @classmethod
    def of(cls, topic: TopicMetadata) -> TopicPlacement:
        """Returns the placement of a topic that is there."""
        return cls(
            topic.name,
            topic.topic_id,
            topic.is_internal,
            len(topic.partitions[0].replicas),
            len(topic.partitions),
            tuple(ReplicaPlacement(found.partition, found.replicas) for found in topic.partitions),
        )


class PartitionDescription(msgspec.Struct, frozen=True):
    """The leader and replicas of a partition; `leader` is -1 while there is none. `isr` are in sync; `elr` are not, but
    hold everything acknowledged, and may lead if nobody else can (KIP-966). Where the topic's protocol is paxos, `isr`
    are the replicas that are live and vote, and `voters` are all that vote: a disk that was lost is replaced under
    another id."""

    partition_id: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    voters: tuple[PartitionVoter, ...]


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
        """Returns the description of a topic, from the metadata."""
        return cls(
            topic.name,
            topic.topic_id,
            topic.is_internal,
            topic.protocol,
            len(topic.partitions[0].replicas),
            len(topic.partitions),
            tuple(
                PartitionDescription(
                    found.partition,
                    found.leader,
                    found.leader_epoch,
                    found.replicas,
                    found.isr,
                    found.elr,
                    found.voters,
                )
                for found in topic.partitions
            ),
        )


class NewAssignment(msgspec.Struct, frozen=True):
    """The replicas that a partition is to have, the preferred leader first."""

    topic_name: str
    partition_id: int
    replicas: tuple[int, ...]


class ReassignmentDescription(msgspec.Struct, frozen=True):
    """A partition whose replicas move; the move is over when all `target_replicas` are in `isr`.

    `throttle_bytes_per_s` holds for all moves of the cluster together, on each broker; None if they are not throttled.
    """

    topic_name: str
    partition_id: int
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    target_replicas: tuple[int, ...]
    isr: tuple[int, ...]
    throttle_bytes_per_s: int | None


class FeatureLevels(msgspec.Struct, frozen=True):
    """The feature levels that a broker speaks, both ends included."""

    lowest: int
    highest: int


class LevelRaised(msgspec.Struct, frozen=True):
    """The cluster's feature level before, and now, or as it would be."""

    before: int
    feature_level: int


class BrokerDescription(msgspec.Struct, frozen=True):
    """A registered broker and its HTTP address.

    A fenced one is not heard of now, and leads nothing. `broker_epoch` is the position of its registration in the
    metadata log; `voter_id` is None if it does not vote on that log.
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
    """None if the broker that answers does not know what this one speaks."""
    scheme: str = HTTP
    """`https` if the client speaks that to its brokers."""
    kafka_host: str | None = None
    """With `kafka_port`, where Kafka's clients find it; None if they do not."""
    kafka_port: int | None = None

    @property
    def address(self) -> str:
        """Returns the broker's base URL."""
        return base_url(self.host, self.port, self.scheme)

    @property
    def kafka_address(self) -> str | None:
        """Returns what Kafka's clients take for `bootstrap.servers`; None if it has no listener for them."""
        return None if self.kafka_host is None else str(Endpoint(self.kafka_host, self.kafka_port or 0))


class VoterDescription(msgspec.Struct, frozen=True):
    """A voter on the metadata log, a broker's disk, and the address where other brokers find it."""

    voter_id: int
    broker_id: int
    host: str
    port: int
    is_live: bool


class RecoveryDescription(msgspec.Struct, frozen=True):
    """The metadata log was begun anew by `tidelog cluster recover`, from all that was left of it up to the metadata
    position `kept_position`. `given_up` says in sentences what was not taken over, as far as it is known."""

    generation: int
    recovery_id: str
    """Empty if an older version did it."""
    recovered_at_ms: int
    recovered_by: str
    kept_position: int
    given_up: tuple[str, ...]


class ClusterDescription(msgspec.Struct, frozen=True):
    """A cluster: its registered brokers, and which of them is the controller (-1 while there is none).

    `controller_epoch` rises with every new controller. `metadata_position` is how far the broker that answered has
    applied the metadata log, and `recoveries` how often that was begun anew, oldest first.
    """

    cluster_id: str
    controller_id: int
    controller_epoch: int
    metadata_position: int
    voters: tuple[VoterDescription, ...]
    brokers: tuple[BrokerDescription, ...]
    recoveries: tuple[RecoveryDescription, ...] = ()
    feature_level: int = 1
    """The level at which the cluster's metadata are written."""

    @property
    def generation(self) -> int:
        """How often the metadata log was begun anew."""
        return self.recoveries[-1].generation if self.recoveries else 0


class BrokerState(msgspec.Struct, frozen=True):
    """A broker's own word: how far it has applied the metadata log, by how many milliseconds its clock is ahead of the
    others', as it was told last, and whether that is too much; and which of its listeners believe strangers on other
    machines, a sentence about each. An older version does not know its clock, nor that."""

    metadata_position: int
    clock_offset_ms: int | None = None
    clock_is_off: bool = False
    insecure_listeners: tuple[str, ...] = ()


class ConfigSynonym(msgspec.Struct, frozen=True):
    """A source that could decide a setting's value."""

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
