"""`apply(image, record, offset) -> image`: the effect of each metadata record on the cluster image, the same on every
broker.

Pure and total: replay uses it alone, so it must never fail on a record that was once written. A name in a record that
does not exist (any more) is ignored. Voter sets are a separate kind of value in the log, which the Paxos engine
understands; `with_voters` applies them to the image.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from types import MappingProxyType

from tidelog.controller.apply_access import apply_to_access
from tidelog.controller.apply_brokers import BrokerRecord, apply_to_brokers
from tidelog.controller.apply_topics import TopicRecord, apply_to_topics
from tidelog.controller.records import (
    AccessRecord,
    ClusterCreated,
    ClusterRecovered,
    ControllerElected,
    LevelRaised,
    MetadataRecord,
    ProducerIdsAllocated,
    QuotasAltered,
    SnapshotAgreed,
    SnapshotTaken,
    level_of,
)
from tidelog.model.cluster import NO_LEADER, ClusterImage, ClusterRecovery, PartitionInfo, Topic, Voter, in_order
from tidelog.model.ids import NodeId
from tidelog.model.quotas import Entity, altered

RECOVERY_EPOCHS = 1 << 12
"""The amount by which epochs are raised when a metadata log is recovered. It exceeds the number of leaders that one
partition may have had in the lost part of the log."""
RECOVERIES_MAX = 100


def apply(image: ClusterImage, record: MetadataRecord, offset: int) -> ClusterImage:
    """Returns the image after the record at `offset` in the metadata log."""
    # A record that needs a level shows that the cluster is at it, even where no `LevelRaised` says so.
    image = replace(image, position=offset + 1, level=max(image.level, level_of(record)))
    if isinstance(record, BrokerRecord):
        return apply_to_brokers(image, record, offset)
    if isinstance(record, TopicRecord):
        return apply_to_topics(image, record, offset)
    if isinstance(record, AccessRecord):
        return replace(image, access=apply_to_access(image.access, record))
    return _apply_to_cluster(image, record)


def apply_all(image: ClusterImage, records: Iterable[MetadataRecord], offset: int) -> ClusterImage:
    """Returns the image after records, the first of which is at `offset`."""
    for i, record in enumerate(records):
        image = apply(image, record, offset + i)
    return image


def with_voters(image: ClusterImage, voters: Iterable[Voter], next_voter_id: int) -> ClusterImage:
    """Returns the image after a voter set took effect; a voter set has no record offset. The first one founds the
    cluster."""
    ordered = tuple(sorted(voters, key=lambda voter: voter.voter_id))
    # Voters are disks: a broker on another disk keeps the voter id that its own disk got, or none.
    ids = {(voter.node_id, voter.incarnation): voter.voter_id for voter in ordered}
    brokers = {
        node: replace(broker, voter_id=ids.get((broker.node_id, broker.storage), broker.voter_id))
        for node, broker in image.brokers.items()
    }
    return replace(
        image,
        voters=ordered,
        # Voter ids only grow. One given out twice could speak for promises of its first owner.
        next_voter_id=max(image.next_voter_id, next_voter_id),
        voters_end=max(image.voters_end, next_voter_id),
        # The first set of voters is the cluster's foundation; later ones do not change how many are wanted.
        voters_founded=image.voters_founded or len(ordered),
        voters_leaving=_among(ordered, image.voters_leaving),
        brokers=MappingProxyType(brokers),
    )


def _among(voters: Iterable[Voter], voter_ids: Iterable[int]) -> tuple[int, ...]:
    present = [voter.voter_id for voter in voters]
    return tuple(voter_id for voter_id in voter_ids if voter_id in present)


def _apply_to_cluster(image: ClusterImage, record: MetadataRecord) -> ClusterImage:
    match record:
        case ClusterCreated(cluster_id, level):
            return replace(image, cluster_id=cluster_id, level=max(level, image.level))
        case LevelRaised():
            return _raised(image, record)
        case ClusterRecovered():
            return _recovered(image, record)
        case ControllerElected(node_id, epoch):
            return replace(image, controller_id=NodeId(node_id), controller_epoch=epoch)
        case ProducerIdsAllocated(next_producer_id):
            return replace(image, next_producer_id=next_producer_id)
        case QuotasAltered():
            return _alter_quotas(image, record)
        case SnapshotTaken():
            # The position behind this record: the snapshot includes it, and everybody's has the same bytes.
            return replace(image, snapshot_position=image.position)
        case SnapshotAgreed(position, _):
            # A late agreement about an older snapshot must not move the log's start back.
            return replace(image, snapshot_agreed=max(image.snapshot_agreed, position))
    # Decoding refuses unknown kinds, so only a record kind without a case here comes to this line.
    raise AssertionError(f"unknown metadata record {record!r}")


def _raised(image: ClusterImage, record: LevelRaised) -> ClusterImage:
    """Returns the image at a new feature level, with the given levels for brokers whose registration did not record
    them."""
    # By incarnation: a process that has registered since may be of another version.
    spoken = {(broker.node_id, broker.incarnation): broker.levels for broker in record.spoken}
    brokers = {
        node: replace(broker, levels=spoken.get((broker.node_id, broker.incarnation), broker.levels))
        for node, broker in image.brokers.items()
    }
    return replace(image, level=max(record.level, image.level), brokers=MappingProxyType(brokers))


def _recovered(image: ClusterImage, record: ClusterRecovered) -> ClusterImage:
    """Returns the image of a recovered cluster: raises all epochs by `RECOVERY_EPOCHS`, beyond those that lost
    decisions may have used, and takes over the in-sync sets of the record."""
    synced = {(replicas.topic_id, replicas.partition): replicas.nodes for replicas in record.synced}

    def begun_anew(topic: Topic, partition: PartitionInfo) -> PartitionInfo:
        epochs = replace(
            partition,
            # Lost decisions may have named leaders in the epochs that follow: none of those may ever be named again.
            leader_epoch=partition.leader_epoch + RECOVERY_EPOCHS,
            partition_epoch=partition.partition_epoch + RECOVERY_EPOCHS,
        )
        # Without an entry the in-sync set of the kept image still holds.
        nodes = synced.get((topic.topic_id, partition.partition))
        if nodes is None:
            return epochs
        isr = tuple(node for node in partition.replicas if node in nodes and image.is_live(node))
        # A replica that is away, and holds the most, may lead once it is back; it is not in sync while it is away.
        elr = tuple(node for node in partition.replicas if node in nodes and not image.is_live(node))
        leader = isr[0] if isr else NO_LEADER
        return replace(epochs, isr=isr, elr=elr, last_known_elr=(), leader=leader)

    topics = {
        name: replace(topic, partitions=tuple(begun_anew(topic, partition) for partition in topic.partitions))
        for name, topic in image.topics.items()
    }
    recovery = ClusterRecovery(
        record.generation, record.at_ms, record.by, record.kept, record.given_up, record.recovery_id
    )
    return replace(
        image,
        topics=in_order(topics),
        controller_epoch=image.controller_epoch + RECOVERY_EPOCHS,
        recoveries=(*image.recoveries, recovery)[-RECOVERIES_MAX:],
    )


def _alter_quotas(image: ClusterImage, record: QuotasAltered) -> ClusterImage:
    quotas = image.quotas
    for change in record.changes:
        quotas = altered(quotas, Entity(change.user, change.client_id, change.address), change.rates)
    return replace(image, quotas=quotas)
