"""Decisions about classic groups in their shard: finds the group, checks its type, creates it if allowed.

A group has the type of its last members. While it has members it refuses those of the other type. An empty group takes
the type of the next member, and keeps its committed offsets.
"""

from __future__ import annotations

from msgspec import structs

from tidelog.groups import decide_offsets
from tidelog.groups.classic import leaves, syncs
from tidelog.groups.classic.commits import check_commit
from tidelog.groups.classic.joins import Joiner, join
from tidelog.groups.classic.members import check_join, unknown
from tidelog.groups.classic.state import ClassicGroup, record_of
from tidelog.groups.classic.turn import Turn
from tidelog.groups.decision import Decision
from tidelog.groups.group import Group
from tidelog.groups.records import GroupKey, gone
from tidelog.groups.settings import GroupSettings, Now, TopicsView
from tidelog.groups.shard import Shard
from tidelog.model.classic_groups import (
    ClassicHeartbeat,
    CommitAsMember,
    LeaveAnswer,
    LeaveGroup,
    LeaveVerdict,
    SyncGroup,
)
from tidelog.model.errors import InconsistentProtocol, TidelogError
from tidelog.model.groups import CommitOffsets, check_group_name


def decide_join(shard: Shard, joiner: Joiner, settings: GroupSettings, now: Now) -> Turn:
    """Decides a JoinGroup. Raises `UnknownMember`, `FencedInstance`, `InconsistentProtocol`, `GroupFull`,
    `InvalidGroupName`, `InvalidSessionTimeout` or `InvalidRequest`."""
    request = joiner.request
    check_join(request, settings)
    group = shard.groups.get(request.group)
    if group is not None and group.members:
        # Two ways of assigning in one group would give a partition to two members.
        raise InconsistentProtocol(
            f"the members of group {request.group!a} have their partitions assigned by the coordinator "
            "(group.protocol=consumer); use another group, or stop them first"
        )
    if group is not None and group.classic is not None:
        turn = Turn(group.classic.copy(), settings, now)
    # An id that nobody gave away: the group it belonged to is gone, and only a new id is safe.
    elif request.member_id:
        raise unknown(request.group, request.member_id)
    else:
        turn = _opened(shard.known_or_new(request.group, settings.groups_max), settings, now)
    # On a copy, for phases and waits are not in the log: if the records find no room, nothing has happened.
    join(turn, joiner)
    return turn


def _opened(group: Group, settings: GroupSettings, now: Now) -> Turn:
    """Returns a decision, with its first records, for a group that becomes a classic one."""
    classic = ClassicGroup(group.name)
    # The record of generation 0 comes first, so that whoever loads the shard knows of which kind the group is.
    turn = Turn(classic, settings, now, [record_of(classic, now.wall_ms)])
    if group.record is not None:
        turn.records.append(gone(GroupKey(group.name)))
    return turn


def decide_sync(shard: Shard, request: SyncGroup, wait: int, settings: GroupSettings, now: Now) -> Turn:
    """Decides a SyncGroup. Raises `UnknownMember`, `FencedInstance`, `IllegalGeneration`, `InconsistentProtocol` or
    `RebalanceInProgress`."""
    turn = Turn(_classic(shard, request.group, request.member_id).copy(), settings, now)
    syncs.sync(turn, request, wait)
    return turn


def decide_heartbeat(shard: Shard, request: ClassicHeartbeat) -> TidelogError | None:
    """Returns None, or the error `RebalanceInProgress` as the answer to a heartbeat. Raises `UnknownMember`,
    `FencedInstance` or `IllegalGeneration`."""
    return syncs.heartbeat(_classic(shard, request.group, request.member_id), request)


def decide_leave(
    shard: Shard, request: LeaveGroup, settings: GroupSettings, now: Now
) -> tuple[Turn | None, LeaveAnswer]:
    """Returns the decision by which the members leave, None if nothing changes; and the answer. Raises
    `InvalidGroupName`."""
    group = shard.groups.get(check_group_name(request.group))
    if group is None or group.classic is None:
        # Each member gets its own verdict, as one request may let several go (KIP-345); a group that is not there has
        # none of them.
        verdicts = (LeaveVerdict(leaving, unknown(request.group, leaving.member_id)) for leaving in request.members)
        return None, LeaveAnswer(tuple(verdicts))
    turn = Turn(group.classic.copy(), settings, now)
    return turn, leaves.leave(turn, request)


def decide_silence(shard: Shard, name: str, member_id: str, settings: GroupSettings, now: Now) -> Turn | None:
    """Returns the decision for an expired session, or (with an empty `member_id`) for the end of the group's wait for
    all members; None if the group is not a classic one any more."""
    group = shard.groups.get(name)
    if group is None or group.classic is None:
        return None
    turn = Turn(group.classic.copy(), settings, now)
    if member_id:
        leaves.silence(turn, member_id)
    else:
        leaves.time_is_up(turn)
    return turn


def decide_commit(
    shard: Shard, request: CommitAsMember, view: TopicsView, settings: GroupSettings, now: Now
) -> Decision:
    """Decides an OffsetCommit by the request that classic members use. Raises `UnknownMember`, `FencedInstance`,
    `IllegalGeneration` or `RebalanceInProgress`; `FencedMember` in a group whose partitions the coordinator assigns;
    `GroupFull`, `InvalidRequest` or `InvalidGroupName`."""
    group = shard.groups.get(check_group_name(request.group))
    commit = CommitOffsets(group=request.group, offsets=request.offsets)
    if group is not None and group.members:
        # While the group has members a commit from outside would be undone by them.
        if not request.member_id:
            raise unknown(request.group, request.member_id)
        # A member of the newer kind that commits by the older request: its epoch stands in the place of the generation.
        as_member = structs.replace(commit, member_id=request.member_id, member_epoch=request.generation)
        return decide_offsets.commit(shard, as_member, view, settings, now)
    check_commit(None if group is None else group.classic, request)
    return decide_offsets.commit_unowned(shard, commit, view, settings, now)


def _classic(shard: Shard, name: str, member_id: str) -> ClassicGroup:
    group = shard.groups.get(name)
    classic = None if group is None else group.classic
    if classic is None:
        raise unknown(check_group_name(name), member_id)
    return classic
