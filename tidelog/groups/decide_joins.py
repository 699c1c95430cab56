"""Decisions about joins: a new member, a repeated join, a static member that returns.

A join carries no epoch, so a repeated one cannot be told from a delayed one whose member has long been active.
Therefore a join never takes partitions from an existing member nor advances its state; and it changes the member's
subscription only as long as the member has sent nothing but its join.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tidelog.groups.answers import heartbeat_answer
from tidelog.groups.assignors.subscriber import Partition
from tidelog.groups.decision import Decision
from tidelog.groups.group import Current, Group, current_record, target_record
from tidelog.groups.rebalance import rebalance
from tidelog.groups.reconcile import UNKNOWN, reconciled
from tidelog.groups.records import ClassicKey, CurrentKey, GroupLogRecord, MemberKey, MemberRecord, TargetKey, gone
from tidelog.groups.settings import GroupSettings, Now, TopicsView
from tidelog.groups.shard import Shard
from tidelog.groups.wishes import newcomer, subscription
from tidelog.model.errors import FencedMember, GroupFull, InstanceIdInUse, InvalidRequest, UnknownGroup
from tidelog.model.groups import Heartbeat, check_group_name, check_instance_name, check_member_id


def join(shard: Shard, request: Heartbeat, view: TopicsView, settings: GroupSettings, now: Now) -> Decision:
    """Adds a member, or repeats the answer to an earlier join. Raises `InvalidRequest`, `UnsupportedAssignor`,
    `GroupFull`, `InstanceIdInUse`, `FencedMember`, and for a classic group `UnknownGroup`."""
    check_group_name(request.group)
    check_member_id(request.member_id)
    group = shard.known_or_new(request.group, settings.groups_max)
    # Members that assign themselves would not notice a partition that the coordinator gives away.
    if group.classic is not None and group.classic.is_in_use:
        raise UnknownGroup(
            f"the members of group {group.name!a} assign their partitions themselves (group.protocol=classic); use "
            "another group, or stop them first"
        )
    member = newcomer(request, settings)
    current = group.currents.get(member.member_id)
    # The join may be a repetition, or come late when its member has long been at work: it must take nothing away.
    if current is not None and not current.is_away:
        return _again(group, member, current, view, settings, now)
    entry = _enter(group, _predecessor(group, member, settings), member, view, now)
    placed = _placed(group, member, UNKNOWN, entry, settings)
    return Decision((*no_longer_classic(group), *placed.records), placed.answer)


def _again(
    group: Group, member: MemberRecord, current: Current, view: TopicsView, settings: GroupSettings, now: Now
) -> Decision:
    """Answers a repeated join of an existing member with its whole assignment. Raises `InvalidRequest` or
    `FencedMember`."""
    was = group.members[member.member_id]
    # A repetition says the same, so this is another process under an id that was drawn twice.
    if was.instance_id != member.instance_id:
        raise InvalidRequest(f"member {member.member_id} has joined with another group.instance.id")
    # The first answer was lost. The assignment is told in full, as the member knows of nothing.
    if subscription(was) == subscription(member):
        return Decision((), heartbeat_answer(was, replace(current, is_told=False), settings))
    # The member has been heard since it joined. This join may be old, and its subscription with it.
    if current.previous_epoch != UNKNOWN.epoch:
        raise FencedMember(
            f"member {member.member_id} is at epoch {current.epoch}, and wants something else by now; "
            "join under another id"
        )
    return _placed(group, member, current, _enter(group, was, member, view, now), settings)


def no_longer_classic(group: Group) -> tuple[GroupLogRecord, ...]:
    """Returns the records that turn a classic group into a consumer group."""
    return () if group.classic_record is None else (gone(ClassicKey(group.name)),)


# -- taking over from a static member --------------------------------------------------------------------------------


def _predecessor(group: Group, member: MemberRecord, settings: GroupSettings) -> MemberRecord | None:
    """Returns the static member that has left and whose partitions the new member takes over; None if there is none.
    Raises `InstanceIdInUse` or `GroupFull`."""
    if member.instance_id is not None:
        check_instance_name(member.instance_id)
        holder = group.instances.get(member.instance_id)
        if holder is not None:
            # Two processes with one instance id by mistake: the one that lives keeps it, and the second waits.
            if not group.currents[holder].is_away:
                raise InstanceIdInUse(
                    f"member {holder} of group {group.name} has the group.instance.id {member.instance_id}; it is "
                    "given away when that member leaves, or is not heard of for its session"
                )
            return group.members[holder]
    if len(group.members) >= settings.members_max:
        raise GroupFull(
            f"group {group.name} has {len(group.members)} members, and may have no more (group.consumer.max.size)"
        )
    return None


@dataclass(frozen=True, slots=True)
class _Entry:
    """The records that add a member, and the group epoch and target assignment after them."""

    records: tuple[GroupLogRecord, ...]
    epoch: int
    target: Mapping[Partition, str]


def _enter(group: Group, was: MemberRecord | None, member: MemberRecord, view: TopicsView, now: Now) -> _Entry:
    """Returns the records that add a member. `was` is the member before, or the static member that it replaces."""
    heir_of = None if was is None or was.member_id == member.member_id else was.member_id
    records: list[GroupLogRecord] = [] if member == was else [member]
    if heir_of is not None:
        # The one who was away is gone in the same decision, so nobody can count both.
        records += [gone(MemberKey(group.name, heir_of)), gone(CurrentKey(group.name, heir_of))]
    # The same subscription needs no new target: the heir takes it over, the epoch stays, and nobody else is disturbed.
    if was is not None and subscription(was) == subscription(member):
        target = group.target_of(was.member_id)
        if heir_of is not None:
            records += [gone(TargetKey(group.name, heir_of)), target_record(group.name, member.member_id, target)]
        return _Entry(tuple(records), group.epoch, target)
    members, targets = {**group.members, member.member_id: member}, dict(group.targets)
    if heir_of is not None:
        del members[heir_of]
        # A sticky assignor goes on from the old target, so the heir keeps what it can of it.
        targets[member.member_id] = targets.pop(heir_of)
    made = rebalance(group, members, targets, view, now)
    return _Entry((*records, *made.records), made.epoch, made.targets[member.member_id])


def _placed(group: Group, member: MemberRecord, current: Current, entry: _Entry, settings: GroupSettings) -> Decision:
    """Returns the decision that gives a joining member its first state. It owns no partitions yet."""
    # None: a join says nothing of what is owned, not even that it is nothing.
    after = reconciled(current, entry.target, entry.epoch, group.owners, member.member_id, None)
    after = replace(after, is_told=not after.held and not after.revoking)
    record = current_record(group.name, member.member_id, after)
    return Decision((*entry.records, record), heartbeat_answer(member, after, settings))
