"""`apply(image, record, offset) -> image`: the effect of each metadata record on the cluster image, the same on every
broker.

Pure and total: replay uses it alone, so it must never fail on a record that was once written. A name in a record that
does not exist (any more) is ignored. Voter sets are a separate kind of value in the log, which the Paxos engine
understands; `with_voters` applies them to the image.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from tidelog.controller.apply_access import apply_to_access
from tidelog.controller.commands import Stamped
from tidelog.controller.protocols import rules_of
from tidelog.controller.records import (
    RENEWED_LEVEL,
    AclsAdded,
    AclsRemoved,
    BrokerFenced,
    BrokerRegistered,
    BrokersStamped,
    BrokerUnfenced,
    BrokerUnregistered,
    ClusterCreated,
    ClusterRecovered,
    ConfigsAltered,
    ControllerElected,
    LevelRaised,
    LossAccepted,
    MetadataRecord,
    MovesThrottled,
    PartitionChange,
    PartitionRegrouped,
    PartitionsAdded,
    PartitionsChanged,
    ProducerIdsAllocated,
    QuotasAltered,
    SnapshotAgreed,
    SnapshotTaken,
    TokensRemoved,
    TokenStored,
    TopicCreated,
    TopicDeleted,
    TopicRemoved,
    UserRemoved,
    UserStored,
    VoterAssigned,
    level_of,
)
from tidelog.model.cluster import (
    NO_LEADER,
    NO_THROTTLE,
    NO_VOTER,
    BrokerInfo,
    ClusterImage,
    ClusterRecovery,
    PartitionInfo,
    Regrouping,
    Topic,
    Voter,
    in_order,
)
from tidelog.model.ids import NodeId, TopicId
from tidelog.model.losses import AcceptedLoss, with_loss
from tidelog.model.quotas import Entity, altered

DURABILITY = "ack.durability"
UNKNOWN_SINCE = 0
"""The start position of replicas that existed before the metadata recorded start positions."""
RECOVERY_EPOCHS = 1 << 12
"""The amount by which epochs are raised when a metadata log is recovered. It exceeds the number of leaders that one
partition may have had in the lost part of the log."""
RECOVERIES_MAX = 100
REGROUPINGS_MAX = 100


def apply(image: ClusterImage, record: MetadataRecord, offset: int) -> ClusterImage:
    """Returns the image after the record at `offset` in the metadata log."""
    # A record that needs a level shows that the cluster is at it, even where no `LevelRaised` says so.
    image = replace(image, position=offset + 1, level=max(image.level, level_of(record)))
    match record:
        case BrokerRegistered() | BrokerFenced() | BrokerUnfenced() | BrokerUnregistered() | VoterAssigned():
            return _apply_to_brokers(image, record, offset)
        case (
            TopicCreated()
            | TopicDeleted()
            | TopicRemoved()
            | PartitionsAdded()
            | PartitionsChanged()
            | PartitionRegrouped()
        ):
            # Snapshots of level 1 have no room for positions, so at that level all brokers must note the same 0.
            since = offset if image.level >= RENEWED_LEVEL else UNKNOWN_SINCE
            return _unthrottled_if_idle(_apply_to_topics(image, record, since))
        case MovesThrottled(bytes_per_s):
            return _unthrottled_if_idle(replace(image, moves_throttle=bytes_per_s))
        case ConfigsAltered():
            return _alter_configs(image, record)
        case ClusterCreated() | LevelRaised() | ClusterRecovered():
            return _apply_to_cluster(image, record)
        case ControllerElected(node_id, epoch):
            return replace(image, controller_id=NodeId(node_id), controller_epoch=epoch)
        case ProducerIdsAllocated(next_producer_id):
            return replace(image, next_producer_id=next_producer_id)
        case _:
            return _apply_others(image, record)


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


def _apply_to_cluster(image: ClusterImage, record: ClusterCreated | LevelRaised | ClusterRecovered) -> ClusterImage:
    match record:
        case ClusterCreated(cluster_id, level):
            return replace(image, cluster_id=cluster_id, level=max(level, image.level))
        case LevelRaised():
            return _raised(image, record)
        case ClusterRecovered():
            return _recovered(image, record)


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


# -- brokers -------------------------------------------------------------------------------------------------------


def _apply_to_brokers(
    image: ClusterImage,
    record: BrokerRegistered | BrokerFenced | BrokerUnfenced | BrokerUnregistered | VoterAssigned,
    offset: int,
) -> ClusterImage:
    node = NodeId(record.node_id)
    if isinstance(record, BrokerRegistered):
        return _with_broker(image, _registered(image, record, offset))
    broker = image.brokers.get(node)
    if isinstance(record, VoterAssigned):
        # The id is used up even if its broker has another disk by now, or is gone.
        image = replace(image, next_voter_id=max(image.next_voter_id, record.voter_id + 1))
        if broker is None or broker.storage != record.storage:
            return image
        return _with_broker(image, replace(broker, voter_id=record.voter_id))
    # The record was decided about an earlier life of the broker; the present one is not fenced by it.
    if broker is None or broker.epoch != record.epoch:
        return image
    if isinstance(record, BrokerUnregistered):
        return _without_broker(image, node)
    return _with_broker(image, replace(broker, is_fenced=isinstance(record, BrokerFenced)))


def _registered(image: ClusterImage, record: BrokerRegistered, offset: int) -> BrokerInfo:
    """Returns the entry of a registering broker, with its disk's voter id if it has one."""
    node = NodeId(record.node_id)
    previous = image.brokers.get(node)
    # Voter id, starts and marks belong to the disk: a new one begins without them.
    on_this_disk = previous if previous is not None and previous.storage == record.storage else None
    voter_id = NO_VOTER if on_this_disk is None else on_this_disk.voter_id
    # A founder votes before it registers for the first time.
    for voter in image.voters:
        if (voter.node_id, voter.incarnation) == (node, record.storage):
            voter_id = voter.voter_id
    return BrokerInfo(
        node,
        in_order(record.advertised),
        record.rack,
        offset,
        record.incarnation,
        record.peer_host,
        record.peer_port,
        record.storage,
        # Until a heartbeat shows that it has applied this record, the broker would act on metadata of its last life.
        is_fenced=True,
        voter_id=voter_id,
        # The most that a directory has ever shown: a copy of it that shows less is an old one.
        starts=max(record.starts, 0 if on_this_disk is None else on_this_disk.starts),
        stamp=max(record.stamp, 0 if on_this_disk is None else on_this_disk.stamp),
        levels=record.levels,
    )


def _stamp(image: ClusterImage, stamps: Iterable[Stamped]) -> ClusterImage:
    brokers = dict(image.brokers)
    for stamped in stamps:
        broker = brokers.get(NodeId(stamped.node_id))
        # A mark of an earlier process may be one of another directory.
        if broker is not None and broker.epoch == stamped.broker_epoch:
            brokers[broker.node_id] = replace(broker, stamp=max(broker.stamp, stamped.stamp))
    return replace(image, brokers=MappingProxyType(brokers))


def _with_broker(image: ClusterImage, broker: BrokerInfo) -> ClusterImage:
    brokers = {**image.brokers, broker.node_id: broker}
    # A broker that registers again on the disk that votes is back: its voter need not go.
    staying = tuple(voter_id for voter_id in image.voters_leaving if voter_id != broker.voter_id)
    return replace(image, brokers=in_order(brokers), voters_leaving=staying)


def _without_broker(image: ClusterImage, node: NodeId) -> ClusterImage:
    brokers = {node_id: broker for node_id, broker in image.brokers.items() if node_id != node}
    # A removed broker never reports that its data are gone, and would keep deleted topics in the image for ever.
    left = {
        topic_id: tuple(holder for holder in holders if holder != node)
        for topic_id, holders in image.deleted_topics.items()
    }
    # The metadata log still counts these voters, so the controller takes them out one by one (`voting`).
    leaving = [voter.voter_id for voter in image.voters if voter.node_id == node]
    return replace(
        image,
        brokers=MappingProxyType(brokers),
        deleted_topics=_still_held(left),
        voters_leaving=tuple(sorted({*image.voters_leaving, *leaving})),
    )


def _among(voters: Iterable[Voter], voter_ids: Iterable[int]) -> tuple[int, ...]:
    present = [voter.voter_id for voter in voters]
    return tuple(voter_id for voter_id in voter_ids if voter_id in present)


# -- topics --------------------------------------------------------------------------------------------------------


def _apply_to_topics(
    image: ClusterImage,
    record: TopicCreated | TopicDeleted | TopicRemoved | PartitionsAdded | PartitionsChanged | PartitionRegrouped,
    offset: int,
) -> ClusterImage:
    match record:
        case TopicCreated(name, topic_id, assignments, configs):
            created = Topic(name, TopicId(topic_id), in_order(configs), ())
            return _with_topic(image, _grown(image, created, assignments, offset))
        case TopicDeleted(topic_id):
            return _delete_topic(image, topic_id)
        case TopicRemoved(topic_id, node_id):
            holders = image.deleted_topics.get(TopicId(topic_id), ())
            left = tuple(holder for holder in holders if holder != node_id)
            return replace(image, deleted_topics=_still_held({**image.deleted_topics, TopicId(topic_id): left}))
        case PartitionsAdded(topic_id, assignments):
            topic = image.topic_by_id(topic_id)
            if topic is None:
                return image
            return _with_topic(image, _grown(image, topic, assignments, offset))
        case PartitionsChanged(changes):
            return _change_partitions(image, changes, offset)
        case PartitionRegrouped():
            return _regroup(image, record, offset)


def _grown(image: ClusterImage, topic: Topic, assignments: list[list[int]], offset: int) -> Topic:
    new = rules_of(topic).new_partition
    first = len(topic.partitions)
    # The rules look at who is live at this position, so all brokers get the same leaders and in-sync sets.
    made = [new(image, first + i, _nodes(nodes)) for i, nodes in enumerate(assignments)]
    more = [replace(info, since=_since(info.replicas, {}, offset)) for info in made]
    return replace(topic, partitions=(*topic.partitions, *more))


def _since(replicas: tuple[NodeId, ...], began_at: Mapping[NodeId, int], offset: int) -> tuple[tuple[NodeId, int], ...]:
    """Returns the offset at which each replica was assigned: `began_at` for the replicas in it, and `offset` for all
    others."""
    return tuple((node, began_at.get(node, offset)) for node in replicas)


def _delete_topic(image: ClusterImage, topic_id: str) -> ClusterImage:
    topic = image.topic_by_id(topic_id)
    if topic is None:
        return image
    topics = {name: remaining for name, remaining in image.topics.items() if name != topic.name}
    nodes = dict.fromkeys(node for info in topic.partitions for node in info.replicas)
    # A broker that is gone will never report that its data are removed.
    holders = tuple(sorted(node for node in nodes if node in image.brokers))
    deleted = _still_held({**image.deleted_topics, topic.topic_id: holders})
    return replace(image, topics=MappingProxyType(topics), deleted_topics=deleted)


def _still_held(deleted: Mapping[TopicId, tuple[NodeId, ...]]) -> Mapping[TopicId, tuple[NodeId, ...]]:
    # A topic that nobody holds any more is forgotten, or every deletion would stay in the image for ever.
    return in_order({topic_id: holders for topic_id, holders in deleted.items() if holders})


def _change_partitions(image: ClusterImage, changes: list[PartitionChange], offset: int) -> ClusterImage:
    by_topic: dict[str, dict[int, PartitionChange]] = {}
    for change in changes:
        by_topic.setdefault(change.topic_id, {})[change.partition] = change
    topics = {
        name: _changed(topic, by_topic[topic.topic_id], offset) if topic.topic_id in by_topic else topic
        for name, topic in image.topics.items()
    }
    return replace(image, topics=MappingProxyType(topics))


def _changed(topic: Topic, changes: Mapping[int, PartitionChange], offset: int) -> Topic:
    partitions = []
    for info in topic.partitions:
        change = changes.get(info.partition)
        partitions.append(info if change is None else _partition_of(change, info, offset))
    return replace(topic, partitions=tuple(partitions))


def _partition_of(change: PartitionChange, was: PartitionInfo, offset: int) -> PartitionInfo:
    replicas = was.replicas if change.replicas is None else _nodes(change.replicas)
    # A renewed replica gets the position of this record, which tells its broker to begin the log anew.
    began_at = {node: since for node, since in was.since if node not in change.renewed}
    return PartitionInfo(
        change.partition,
        NodeId(change.leader),
        change.leader_epoch,
        replicas,
        _nodes(change.isr),
        change.partition_epoch,
        elr=_nodes(change.elr),
        last_known_elr=_nodes(change.last_known_elr),
        adding=_nodes(change.adding),
        removing=_nodes(change.removing),
        members=was.members if change.members is None else tuple(change.members),
        wanted=was.wanted if change.wanted is None else tuple(change.wanted),
        next_engine_id=was.next_engine_id if change.next_engine_id is None else change.next_engine_id,
        # Once voters have changed, a disk without the log must rejoin it.
        is_founding=was.is_founding and change.members is None,
        since=_since(replicas, began_at, offset),
        # Changes of a leader or replica never touch what an operator has given up.
        losses=was.losses,
        regroupings=was.regroupings,
    )


def _nodes(numbers: list[int]) -> tuple[NodeId, ...]:
    return tuple(map(NodeId, numbers))


def _unthrottled_if_idle(image: ClusterImage) -> ClusterImage:
    """Returns the image without its reassignment throttle if no replica is being moved."""
    # Left in force, the throttle would slow down a later move that nobody meant it for. (In Kafka an operator has to
    # remember to take it off.)
    if image.moves_throttle == NO_THROTTLE or any(
        info.is_moving for topic in image.topics.values() for info in topic.partitions
    ):
        return image
    return replace(image, moves_throttle=NO_THROTTLE)


def _alter_configs(image: ClusterImage, record: ConfigsAltered) -> ClusterImage:
    topic = image.topic_by_id(record.topic_id)
    if topic is None:
        return image
    merged: dict[str, str | None] = {**topic.configs, **record.changes}
    configs = {name: value for name, value in merged.items() if value is not None}
    # Brokers that registered before this position may have acknowledged from memory, whatever the setting says later.
    is_changed = topic.configs.get(DURABILITY) != configs.get(DURABILITY)
    volatile_before = image.position if is_changed else topic.volatile_before
    return _with_topic(image, replace(topic, configs=in_order(configs), volatile_before=volatile_before))


def _accept_loss(image: ClusterImage, record: LossAccepted) -> ClusterImage:
    topic = image.topic_by_id(record.topic_id)
    if topic is None or record.partition >= len(topic.partitions):
        return image
    info = topic.partitions[record.partition]
    losses = info.losses
    for lost in record.ranges:
        accepted = AcceptedLoss(
            lost.start, lost.end, record.at_ms, record.by, record.via, lost.statements, lost.digests
        )
        losses = with_loss(losses, accepted)
    return _with_partition(image, topic, replace(info, losses=losses))


def _regroup(image: ClusterImage, record: PartitionRegrouped, offset: int) -> ClusterImage:
    change = record.change
    topic = image.topic_by_id(change.topic_id)
    if topic is None or change.partition >= len(topic.partitions):
        return image
    regrouping = Regrouping(
        change.leader_epoch,
        record.end,
        record.at_ms,
        record.by,
        record.via,
        record.source,
        record.statements,
        tuple(change.members or ()),
        record.position,
        record.birth,
    )
    now = _partition_of(change, topic.partitions[change.partition], offset)
    # The image is held by every broker, so its audit records are bounded; the newest one names the era.
    kept = (*now.regroupings, regrouping)[-REGROUPINGS_MAX:]
    return _with_partition(image, topic, replace(now, regroupings=kept))


def _with_partition(image: ClusterImage, topic: Topic, info: PartitionInfo) -> ClusterImage:
    before, behind = topic.partitions[: info.partition], topic.partitions[info.partition + 1 :]
    return _with_topic(image, replace(topic, partitions=(*before, info, *behind)))


def _with_topic(image: ClusterImage, topic: Topic) -> ClusterImage:
    return replace(image, topics=in_order({**image.topics, topic.name: topic}))


# -- others -----------------------------------------------------------------------------------------------------


def _apply_others(image: ClusterImage, record: MetadataRecord) -> ClusterImage:
    match record:
        case BrokersStamped(stamps):
            return _stamp(image, stamps)
        case LossAccepted():
            return _accept_loss(image, record)
        case UserStored() | UserRemoved() | TokenStored() | TokensRemoved() | AclsAdded() | AclsRemoved():
            return replace(image, access=apply_to_access(image.access, record))
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


def _alter_quotas(image: ClusterImage, record: QuotasAltered) -> ClusterImage:
    quotas = image.quotas
    for change in record.changes:
        quotas = altered(quotas, Entity(change.user, change.client_id, change.address), change.rates)
    return replace(image, quotas=quotas)
