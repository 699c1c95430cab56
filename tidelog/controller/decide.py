"""The controller's core: `decide(image, command, config) -> Decision`.

Pure. Deciding looks at the image and changes nothing; the records take effect when the metadata log has them and
`apply` is done with them. Whatever is refused raises a `TidelogError`, and then nothing has happened. A command that
comes a second time, because its first answer was lost, finds its work done and gets the same answer.
"""

from __future__ import annotations

from tidelog.config.schema import BrokerConfig
from tidelog.controller.access_commands import (
    AddAcls,
    RemoveAcls,
    RemoveTokens,
    RemoveUser,
    StoreToken,
    StoreUser,
)
from tidelog.controller.commands import (
    AddPartitions,
    AgreeSnapshot,
    AllocateProducerIds,
    AlterQuotas,
    AlterTopicConfigs,
    AssignVoter,
    BrokerHeartbeat,
    Command,
    CreateOffsetsTopic,
    CreateTopic,
    DeleteTopic,
    FenceBroker,
    LeadCluster,
    NoteStamps,
    ProducerIdBlock,
    RaiseLevel,
    RegisterBroker,
    RemoveBroker,
    ReportRemoved,
    TakeSnapshot,
)
from tidelog.controller.decide_access import decide_access
from tidelog.controller.decide_brokers import fence, heartbeat, note_stamps, register, remove
from tidelog.controller.decide_level import raise_level
from tidelog.controller.decide_losses import accept_loss
from tidelog.controller.decide_members import alter_members, report_leader, report_lost_votes
from tidelog.controller.decide_offsets_topic import create_offsets_topic
from tidelog.controller.decide_partitions import alter_partition, elect_leaders, hand_over
from tidelog.controller.decide_quotas import alter_quotas
from tidelog.controller.decide_reassignments import alter_reassignments
from tidelog.controller.decide_regrouping import regroup
from tidelog.controller.decide_topics import (
    add_partitions,
    alter_configs,
    create_topic,
    delete_topic,
    report_removed,
)
from tidelog.controller.decide_unfit import report_lost, report_unfit
from tidelog.controller.decision import Decision
from tidelog.controller.partition_commands import (
    AcceptLoss,
    AlterMembers,
    AlterPartition,
    AlterReassignments,
    ElectLeaders,
    HandOver,
    RegroupPartition,
    ReportLostReplicas,
    ReportLostVotes,
    ReportPaxosLeader,
    ReportUnfitReplicas,
)
from tidelog.controller.records import (
    ClusterCreated,
    ControllerElected,
    MetadataRecord,
    ProducerIdsAllocated,
    SnapshotAgreed,
    SnapshotTaken,
    VoterAssigned,
)
from tidelog.model.cluster import ClusterImage
from tidelog.model.ids import KEYED_PRODUCER_BIT, NodeId

PRODUCER_ID_BLOCK = 1_000


def decide(image: ClusterImage, command: Command, config: BrokerConfig) -> Decision:
    """What follows from a command. Raises what the deciding function of each kind raises."""
    match command:
        case CreateTopic() | CreateOffsetsTopic() | AddPartitions() | DeleteTopic() | AlterTopicConfigs():
            return _about_topics(image, command, config)
        case RegisterBroker() | BrokerHeartbeat() | FenceBroker() | RemoveBroker() | ReportRemoved() | NoteStamps():
            return _about_brokers(image, command, config)
        case (
            AlterPartition()
            | ElectLeaders()
            | HandOver()
            | AlterReassignments()
            | AcceptLoss()
            | RegroupPartition()
            | ReportUnfitReplicas()
            | ReportLostReplicas()
        ):
            return _about_partitions(image, command, config)
        case AlterMembers() | ReportPaxosLeader() | ReportLostVotes():
            return _about_members(image, command, config)
        case AllocateProducerIds():
            return _allocate_producer_ids(image)
        case LeadCluster() | RaiseLevel() | AssignVoter() | AlterQuotas():
            return _about_cluster(image, command)
        case TakeSnapshot() | AgreeSnapshot():
            return _about_snapshots(image, command)
        case StoreUser() | RemoveUser() | StoreToken() | RemoveTokens() | AddAcls() | RemoveAcls():
            return decide_access(image, command, config)
    raise AssertionError(f"no decision is known for {command!r}")


def _about_topics(
    image: ClusterImage,
    command: CreateTopic | CreateOffsetsTopic | AddPartitions | DeleteTopic | AlterTopicConfigs,
    config: BrokerConfig,
) -> Decision:
    match command:
        case CreateTopic():
            return create_topic(image, command, config)
        case CreateOffsetsTopic():
            return create_offsets_topic(image, command, config)
        case AddPartitions():
            return add_partitions(image, command, config)
        case DeleteTopic():
            return delete_topic(image, command, config)
        case AlterTopicConfigs():
            return alter_configs(image, command, config)


def _about_brokers(
    image: ClusterImage,
    command: RegisterBroker | BrokerHeartbeat | FenceBroker | RemoveBroker | ReportRemoved | NoteStamps,
    config: BrokerConfig,
) -> Decision:
    match command:
        case RegisterBroker():
            return register(image, command, config)
        case BrokerHeartbeat():
            return heartbeat(image, command, config)
        case FenceBroker():
            return fence(image, command, config)
        case RemoveBroker():
            return remove(image, command, config)
        case ReportRemoved():
            return report_removed(image, command)
        case NoteStamps():
            return note_stamps(image, command)


def _about_partitions(
    image: ClusterImage,
    command: AlterPartition
    | ElectLeaders
    | HandOver
    | AlterReassignments
    | AcceptLoss
    | RegroupPartition
    | ReportUnfitReplicas
    | ReportLostReplicas,
    config: BrokerConfig,
) -> Decision:
    match command:
        case AlterPartition():
            return alter_partition(image, command, config)
        case ElectLeaders():
            return elect_leaders(image, command, config)
        case HandOver():
            return hand_over(image, command, config)
        case AlterReassignments():
            return alter_reassignments(image, command, config)
        case AcceptLoss():
            return accept_loss(image, command)
        case RegroupPartition():
            return regroup(image, command, config)
        case ReportUnfitReplicas():
            return report_unfit(image, command, config)
        case ReportLostReplicas():
            return report_lost(image, command, config)


def _about_members(
    image: ClusterImage, command: AlterMembers | ReportPaxosLeader | ReportLostVotes, config: BrokerConfig
) -> Decision:
    match command:
        case AlterMembers():
            return alter_members(image, command, config)
        case ReportPaxosLeader():
            return report_leader(image, command, config)
        case ReportLostVotes():
            return report_lost_votes(image, command, config)


def _allocate_producer_ids(image: ClusterImage) -> Decision:
    """The next block; ids made from idempotency keys are never reached."""
    first = image.next_producer_id
    assert first + PRODUCER_ID_BLOCK < KEYED_PRODUCER_BIT
    record = ProducerIdsAllocated(first + PRODUCER_ID_BLOCK)
    return Decision((record,), lambda after: ProducerIdBlock(after.position, first, PRODUCER_ID_BLOCK))


def _about_cluster(image: ClusterImage, command: LeadCluster | RaiseLevel | AssignVoter | AlterQuotas) -> Decision:
    match command:
        case LeadCluster():
            return _lead(image, command)
        case RaiseLevel():
            return raise_level(image, command)
        case AssignVoter():
            return _assign_voter(image, command)
        case AlterQuotas():
            return alter_quotas(image, command)


def _lead(image: ClusterImage, command: LeadCluster) -> Decision:
    created: tuple[MetadataRecord, ...] = ()
    if not image.cluster_id:
        created = (ClusterCreated(command.cluster_id, command.level),)
    return Decision((*created, ControllerElected(command.node_id, command.epoch)))


def _assign_voter(image: ClusterImage, command: AssignVoter) -> Decision:
    broker = image.brokers.get(NodeId(command.node_id))
    if broker is None or broker.storage != command.storage or broker.voter_id >= image.voters_end:
        return Decision()
    return Decision((VoterAssigned(broker.node_id, broker.storage, image.next_voter_id),))


def _about_snapshots(image: ClusterImage, command: TakeSnapshot | AgreeSnapshot) -> Decision:
    if isinstance(command, TakeSnapshot):
        return Decision((SnapshotTaken(),))
    if not image.snapshot_agreed < command.position <= image.snapshot_position:
        return Decision()
    return Decision((SnapshotAgreed(command.position, command.root_hash),))
