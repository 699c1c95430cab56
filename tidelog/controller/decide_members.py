"""Decisions about partitions that commit by majority (Paxos): what their leaders report of their logs.

The voters of such a log are decided in the log itself, and the controller cannot refuse them: it records them
(`AlterMembers`), and answers which members it wants next. The report is a compare-and-set all the same, with the checks
and codes of `decide_partitions`: a report that was written before the controller's newest change must not end the
reassignment that this change began.
"""

from __future__ import annotations

from dataclasses import replace

from tidelog.config.schema import BrokerConfig
from tidelog.controller.broker_state import Brokers
from tidelog.controller.decide_brokers import registered_broker
from tidelog.controller.decide_partitions import Partitions, decide_reports
from tidelog.controller.decision import Decision
from tidelog.controller.leadership import as_record
from tidelog.controller.member_steps import MemberSet, in_order
from tidelog.controller.partition_commands import (
    AlterCode,
    AlterMembers,
    LostTerm,
    LostVote,
    MembersAltered,
    MembersAnswer,
    MembersAsked,
    ReportLostVotes,
    ReportPaxosLeader,
    TermEnd,
)
from tidelog.controller.protocols import rules_of
from tidelog.controller.quorum_leadership import (
    ids_of,
    is_electable,
    next_candidate,
    with_new_id,
    with_wanted,
)
from tidelog.model.cluster import BrokerInfo, ClusterImage, PartitionInfo, Topic
from tidelog.model.errors import NotController


def alter_members(image: ClusterImage, command: AlterMembers, config: BrokerConfig) -> Decision:
    """Records the members (Paxos voters) of partitions' logs, as the partitions' leaders report them. The answer has a
    code and the new epochs for each partition.

    Raises `StaleBrokerEpoch` or `BrokerRemoved` if the sender is not registered under its broker epoch; `NotController`
    if the sender knows a later registration or later changes of a partition than the image.
    """
    sender = registered_broker(image, command.node_id, command.broker_epoch)
    partitions = Partitions(image, config)
    answers = [_alter(partitions, sender, report) for report in command.partitions]
    return Decision(as_record(partitions.changes), lambda after: MembersAltered(after.position, answers))


def _alter(partitions: Partitions, sender: BrokerInfo, report: MembersAsked) -> MembersAnswer:
    entry = partitions.find(report.topic_id, report.partition)
    if entry is None:
        return MembersAnswer(report.topic_id, report.partition, AlterCode.UNKNOWN_PARTITION)
    topic, info = entry
    code, now = _judge(sender, info, report), info
    # A repetition of what was noted already is answered alike, and noted no second time.
    if code is AlterCode.NONE and report.partition_epoch == info.partition_epoch:
        now = partitions.settle(topic, info, _noted(info, report.in_force, Brokers(partitions.image)))
        code = AlterCode.NONE if now.leader_epoch == info.leader_epoch else AlterCode.NEW_LEADER_ELECTED
    return MembersAnswer(report.topic_id, report.partition, code, now.leader_epoch, now.partition_epoch)


def _judge(sender: BrokerInfo, info: PartitionInfo, report: MembersAsked) -> AlterCode:
    # This node may have been the controller once, with an image older than the leader's; by that it must not judge.
    if report.leader_epoch > info.leader_epoch or report.partition_epoch > info.partition_epoch:
        raise NotController(f"node {sender.node_id} knows later changes of partition {info.partition} than this one")
    # A later leader may have changed the voters since, so this report is old.
    if report.leader_epoch < info.leader_epoch:
        return AlterCode.FENCED_LEADER_EPOCH
    if info.leader != sender.node_id or not _is_possible(info, report.in_force):
        return AlterCode.INVALID_REQUEST
    if report.partition_epoch < info.partition_epoch:
        # Written before the controller's newest order, the report must not end the move which that order began.
        is_next = report.partition_epoch == info.partition_epoch - 1
        is_done = is_next and in_order(report.in_force.members) == info.members
        return AlterCode.NONE if is_done else AlterCode.INVALID_UPDATE_VERSION
    return AlterCode.NONE


def _is_possible(info: PartitionInfo, reported: MemberSet) -> bool:
    """Returns True if the reported members can be those of the log: ids and nodes are distinct, the ids were given out,
    and known ids have their known disks."""
    # A log that has changed its voters by itself cannot be refused; what contradicts ids that were given out is no
    # log's state, and would let a node vote twice.
    ids, nodes = ids_of(reported.members), [member.node_id for member in reported.members]
    given = {member.engine_id: member for member in (*info.members, *info.wanted)}
    return (
        bool(ids)
        and len(set(ids)) == len(set(nodes)) == len(ids)
        and 1 <= min(ids) <= max(ids) < reported.next_engine_id <= info.next_engine_id
        and all(given.get(member.engine_id, member) == member for member in reported.members)
    )


def _noted(info: PartitionInfo, reported: MemberSet, brokers: Brokers) -> PartitionInfo:
    """Returns the partition with the reported members. A wanted member gets another engine id if one with a larger id
    became a member before it, since ids are added in ascending order only; if all wanted members are in force, the
    reassignment is complete."""
    ids = ids_of(reported.members)
    # Ids are added in their order: one that was passed over can never be, so its disk gets another.
    turns = tuple(
        member for member in info.wanted if member.engine_id in ids or member.engine_id >= reported.next_engine_id
    )
    now = with_wanted(replace(info, members=in_order(reported.members), wanted=turns), brokers)
    # The move ends only when the log's own voters are those wanted: until then a replica that is to go still counts in
    # its quorums, and must keep its log.
    if now.members != now.wanted:
        return now
    return replace(now, replicas=now.target, adding=(), removing=())


def report_lost_votes(image: ClusterImage, command: ReportLostVotes, config: BrokerConfig) -> Decision:
    """Gives disks that have lost their votes new engine ids; ids that are not wanted (any more) are ignored. Raises
    `StaleBrokerEpoch`, `BrokerRemoved` or `NotController`."""
    return decide_reports(image, command, config, command.votes, _replace_id)


def _replace_id(partitions: Partitions, broker: BrokerInfo, vote: LostVote, topic: Topic, info: PartitionInfo) -> None:
    # By id and node: the id may have been replaced since, or be another broker's, which goes on voting.
    lost = [member for member in info.wanted if (member.engine_id, member.node_id) == (vote.engine_id, broker.node_id)]
    if lost:
        partitions.settle(topic, info, with_new_id(info, lost[0]))


# -- terms that are over -----------------------------------------------------------------------------------------------


def report_leader(image: ClusterImage, command: ReportPaxosLeader, config: BrokerConfig) -> Decision:
    """Begins the next leader epoch of partitions whose leaders report that they cannot lead any more under the present
    one. A report about another leader epoch is ignored. Raises `StaleBrokerEpoch`, `BrokerRemoved` or `NotController`.
    """
    return decide_reports(image, command, config, command.lost, _begin_next)


def _begin_next(partitions: Partitions, broker: BrokerInfo, lost: LostTerm, topic: Topic, info: PartitionInfo) -> None:
    # A late report would end the term of somebody who leads well.
    is_its_own = info.leader == broker.node_id and info.leader_epoch == lost.leader_epoch
    if not (rules_of(topic).leader_reports_members and is_its_own and is_electable(info)):
        return
    # The same broker may go on under a greater number; one whose disk has failed cannot.
    leader = info.leader if lost.end is TermEnd.RENEW else next_candidate(info)
    partitions.settle(topic, info, replace(info, leader=leader, leader_epoch=info.leader_epoch + 1))
