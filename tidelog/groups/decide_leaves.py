"""Decisions about members that leave: for good, or temporarily and keeping their partitions (static members)."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.groups.decision import Decision
from tidelog.groups.group import Current, Group, current_record
from tidelog.groups.rebalance import rebalance
from tidelog.groups.records import CurrentKey, GroupLogRecord, MemberKey, gone
from tidelog.groups.settings import GroupSettings, Now, TopicsView
from tidelog.model.errors import InvalidRequest
from tidelog.model.groups import LEAVE, LEAVE_STATIC, Heartbeat, HeartbeatAnswer


def leave(group: Group | None, request: Heartbeat, view: TopicsView, settings: GroupSettings, now: Now) -> Decision:
    """Removes a member, or marks a static one as away. A member that is unknown has left already, and its first answer
    was lost. Raises `InvalidRequest`."""
    answer = HeartbeatAnswer(request.member_id, request.member_epoch, settings.heartbeat_interval_ms, 0, None)
    member = None if group is None else group.members.get(request.member_id)
    # A repetition, whose first answer was lost: the member has left already.
    if group is None or member is None:
        return Decision((), answer)
    if request.member_epoch == LEAVE:
        return Decision(without(group, [request.member_id], view, now), answer)
    if member.instance_id is None:
        raise InvalidRequest(f"only a member with a group.instance.id leaves with {LEAVE_STATIC}; use {LEAVE}")
    current = group.currents[request.member_id]
    if current.is_away:
        return Decision((), answer)
    # A static member holds nothing while it is away, so that nothing is committed for it; its target stays, and waits
    # for whoever joins with its instance id.
    away = Current(LEAVE_STATIC, current.epoch)
    return Decision((current_record(group.name, request.member_id, away),), answer)


def without(group: Group, members: Sequence[str], view: TopicsView, now: Now) -> tuple[GroupLogRecord, ...]:
    """Returns the records that remove these members, with new targets for the others."""
    left = {member_id: member for member_id, member in group.members.items() if member_id not in members}
    targets = {member_id: target for member_id, target in group.targets.items() if member_id in left}
    keys = [key(group.name, member_id) for member_id in members for key in (MemberKey, CurrentKey)]
    # Tombstones and new targets go together: between them the partitions of those that left would be in nobody's
    # target.
    return (*map(gone, keys), *rebalance(group, left, targets, view, now).records)
