"""Deciding about heartbeats: who is a member, what it wants, and what it may own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from msgspec import structs

from tidelog.groups.assignors import ASSIGNORS
from tidelog.groups.assignors.subscriber import Partition
from tidelog.groups.decision import Decision
from tidelog.groups.group import Current, Group, current_record, target_record
from tidelog.groups.patterns import matcher
from tidelog.groups.rebalance import rebalance
from tidelog.groups.reconcile import UNKNOWN, could_be_given, reconciled
from tidelog.groups.records import CurrentKey, GroupLogRecord, MemberKey, MemberRecord, TargetKey, gone
from tidelog.groups.settings import REBALANCE_TIMEOUT_MS, GroupSettings, Now, TopicsView
from tidelog.groups.shard import Shard
from tidelog.model.errors import (
    FencedMember,
    GroupFull,
    InstanceIdInUse,
    InvalidRequest,
    UnknownMember,
    UnsupportedAssignor,
)
from tidelog.model.groups import JOIN, LEAVE, LEAVE_STATIC, Heartbeat, HeartbeatAnswer, check_group_name, grouped
from tidelog.model.names import check_topic_name

SUBSCRIBED_TOPICS_MAX = 1_000
TEXT_LENGTH_MAX = 255
REBALANCE_TIMEOUT_MS_MAX = 86_400_000
_WISHES: Final = ("rack", "pattern", "assignor", "session_timeout_ms", "rebalance_timeout_ms")


def heartbeat(shard: Shard, request: Heartbeat, view: TopicsView, settings: GroupSettings, now: Now) -> Decision:
    """Raises what `Heartbeat` says."""
    match request.member_epoch:
        case 0:
            return _join(shard.groups.get(request.group), request, view, settings, now)
        case -1 | -2:
            return _leave(shard.groups.get(request.group), request, view, settings, now)
        case epoch if epoch < LEAVE_STATIC:
            raise InvalidRequest(
                f"member epoch {epoch} is none: {JOIN} joins, {LEAVE} leaves, {LEAVE_STATIC} leaves and keeps the place"
            )
    return _beat(member_of(shard, request.group, request.member_id), request, view, settings, now)


def member_of(shard: Shard, name: str, member_id: str) -> Group:
    """The group, which has this member. Raises `UnknownMember`."""
    group = shard.groups.get(name)
    if group is None or member_id not in group.members:
        raise UnknownMember(f"group {name!a} has no member {member_id!a}; join again")
    return group


def has_news(shard: Shard, request: Heartbeat) -> bool:
    """Whether deciding this heartbeat again, that had no news before, would tell the member something."""
    group = shard.groups.get(request.group)
    current = None if group is None else group.currents.get(request.member_id)
    if group is None or current is None or current.epoch != request.member_epoch:
        return True
    return current.epoch != group.epoch or not current.is_told or could_be_given(group, request.member_id, current)


# -- I am here -------------------------------------------------------------------------------------------------------


def _beat(group: Group, request: Heartbeat, view: TopicsView, settings: GroupSettings, now: Now) -> Decision:
    current, was = group.currents[request.member_id], group.members[request.member_id]
    said = None if request.owned is None else _said(request)
    if current.epoch != request.member_epoch:
        _check_belated(current, was, request, said)
        return Decision((), _answer(request.member_id, was, replace(current, is_told=False), settings))
    member = _wanting(request, was, settings)
    records: tuple[GroupLogRecord, ...] = () if member == was else (member,)
    epoch, target = group.epoch, group.target_of(request.member_id)
    if _subscription(member) != _subscription(was):
        made = rebalance(group, {**group.members, request.member_id: member}, group.targets, view, now)
        epoch, target, records = made.epoch, made.targets[request.member_id], (*records, *made.records)
    after = reconciled(current, target, epoch, group.owners, request.member_id, said)
    if after != current:
        records = (*records, current_record(group.name, request.member_id, after))
    return Decision(records, _answer(request.member_id, member, after, settings))


def _said(request: Heartbeat) -> frozenset[Partition]:
    return frozenset((entry.topic, number) for entry in request.owned or () for number in entry.partitions)


def _check_belated(
    current: Current, member: MemberRecord, request: Heartbeat, said: frozenset[Partition] | None
) -> None:
    """A member may go by the epoch before: the answer that told it of the new one was lost. It is told again. Nothing
    that it says counts, for this may be an old heartbeat that comes late; so it must not say anything new."""
    is_told_again = request.member_epoch == current.previous_epoch and not current.is_away
    if is_told_again and said is not None:
        is_told_again = all(current.of(partition) is not None for partition in said)
    if is_told_again and request.topics is not None:
        is_told_again = _names(request.topics) == member.topics
    if is_told_again and request.pattern is not None:
        is_told_again = request.pattern == member.pattern
    if not is_told_again:
        raise FencedMember(
            f"member {request.member_id} is at epoch {current.epoch}, and spoke with {request.member_epoch}; "
            "it owns nothing any more, and joins again"
        )


def _answer(member_id: str, member: MemberRecord, current: Current, settings: GroupSettings) -> HeartbeatAnswer:
    session_ms = session_timeout_ms(member, settings)
    interval_ms = min(settings.heartbeat_interval_ms, session_ms // 3)
    assignment = None if current.is_told else grouped(tuple(current.held))
    return HeartbeatAnswer(member_id, current.epoch, interval_ms, session_ms, assignment)


def session_timeout_ms(member: MemberRecord, settings: GroupSettings) -> int:
    """In force for the member."""
    return settings.session_timeout_ms if member.session_timeout_ms is None else member.session_timeout_ms


def rebalance_timeout_ms(member: MemberRecord) -> int:
    """For how long it may keep what it was told to give up."""
    return REBALANCE_TIMEOUT_MS if member.rebalance_timeout_ms is None else member.rebalance_timeout_ms


# -- joining ---------------------------------------------------------------------------------------------------------


def _join(known: Group | None, request: Heartbeat, view: TopicsView, settings: GroupSettings, now: Now) -> Decision:
    check_group_name(request.group)
    check_group_name(request.member_id, "member")
    group = Group(request.group) if known is None else known
    was = _predecessor(group, request, settings)
    member = _wanting(request, None, settings)
    records, targets, epoch = _entered(group, was, member, view, now)
    current = group.currents.get(member.member_id, UNKNOWN)
    after = _joined(UNKNOWN if current.is_away else current, group, member.member_id, targets[member.member_id], epoch)
    if after != current:
        records.append(current_record(group.name, member.member_id, after))
    return Decision(tuple(records), _answer(member.member_id, member, after, settings))


def _predecessor(group: Group, request: Heartbeat, settings: GroupSettings) -> MemberRecord | None:
    """Whose place the member takes: its own, if this join is repeated; that of a static member that has left."""
    if request.topics is None and request.pattern is None:
        raise InvalidRequest("who joins says what it subscribes to: give topics, or a pattern")
    was = group.members.get(request.member_id)
    if was is not None:
        if was.instance_id != request.instance_id:
            raise InvalidRequest(f"member {request.member_id} has joined with another group.instance.id")
        return was
    if request.instance_id is not None:
        check_group_name(request.instance_id, "instance")
        holder = group.instances.get(request.instance_id)
        if holder is not None:
            if not group.currents[holder].is_away:
                raise InstanceIdInUse(
                    f"member {holder} of group {group.name} has the group.instance.id {request.instance_id}; it is "
                    "given away when that member leaves, or is not heard of for its session"
                )
            return group.members[holder]
    if len(group.members) >= settings.members_max:
        raise GroupFull(
            f"group {group.name} has {len(group.members)} members, and may have no more (group.consumer.max.size)"
        )
    return None


def _entered(
    group: Group, was: MemberRecord | None, member: MemberRecord, view: TopicsView, now: Now
) -> tuple[list[GroupLogRecord], dict[str, Mapping[Partition, str]], int]:
    """The records that make it a member, in the place of `was`; the targets and the epoch after them."""
    members, targets = {**group.members, member.member_id: member}, dict(group.targets)
    records: list[GroupLogRecord] = [] if member == was else [member]
    is_heir = was is not None and was.member_id != member.member_id
    if was is not None and is_heir:
        del members[was.member_id]
        targets[member.member_id] = targets.pop(was.member_id)
        records += [gone(MemberKey(group.name, was.member_id)), gone(CurrentKey(group.name, was.member_id))]
    if was is None or _subscription(was) != _subscription(member):
        made = rebalance(group, members, targets, view, now)
        return [*records, *made.records], dict(made.targets), made.epoch
    if is_heir:
        records.append(gone(TargetKey(group.name, was.member_id)))
        records.append(target_record(group.name, member.member_id, targets[member.member_id]))
    return records, targets, group.epoch


def _joined(current: Current, group: Group, member_id: str, target: Mapping[Partition, str], epoch: int) -> Current:
    """Who joins knows of nothing that it owns. What it held stays its own: nobody else gets it before the member, which
    is told of it now, has said otherwise with the epoch in force, for this may be an old join that comes late."""
    after = reconciled(current, target, epoch, group.owners, member_id, None)
    return replace(after, is_told=not after.held and not after.revoking)


def _subscription(member: MemberRecord) -> tuple[tuple[str, ...], str, str | None]:
    """What matters to the assignment."""
    return member.topics, member.pattern, member.assignor


def _wanting(request: Heartbeat, was: MemberRecord | None, settings: GroupSettings) -> MemberRecord:
    """What the member is and wants, with what it said now. Raises `InvalidRequest`, `UnsupportedAssignor`."""
    _check_wishes(request, settings)
    if was is not None:
        return _updated(was, request)
    return MemberRecord(
        group=request.group,
        member_id=request.member_id,
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rack=request.rack,
        topics=_names(request.topics or ()),
        pattern=request.pattern or "",
        assignor=request.assignor,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
    )


def _updated(was: MemberRecord, request: Heartbeat) -> MemberRecord:
    """None, and no client id, mean "as I said before"."""
    said = {name: wish for name in _WISHES if (wish := getattr(request, name)) is not None}
    if request.topics is not None:
        said["topics"] = _names(request.topics)
    if request.client_id:
        said |= {"client_id": request.client_id, "client_host": request.client_host}
    return structs.replace(was, **said) if said else was


def _names(topics: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(dict.fromkeys(topics)))


def _check_wishes(request: Heartbeat, settings: GroupSettings) -> None:
    for name in request.topics or ():
        check_topic_name(name)
    if request.topics is not None and len(request.topics) > SUBSCRIBED_TOPICS_MAX:
        raise InvalidRequest(f"a member subscribes to at most {SUBSCRIBED_TOPICS_MAX} topics by name; use a pattern")
    if request.pattern:
        matcher(request.pattern)
    if request.assignor is not None and request.assignor not in ASSIGNORS:
        raise UnsupportedAssignor(f"there is no assignor {request.assignor!a}; use one of {', '.join(ASSIGNORS)}")
    for what, text in (("client_id", request.client_id), ("client_host", request.client_host), ("rack", request.rack)):
        if text is not None and len(text) > TEXT_LENGTH_MAX:
            raise InvalidRequest(f"{what} has at most {TEXT_LENGTH_MAX} characters; this one has {len(text)}")
    _check_time("session_timeout_ms", request.session_timeout_ms, *settings.session_timeouts_ms)
    _check_time("rebalance_timeout_ms", request.rebalance_timeout_ms, 1, REBALANCE_TIMEOUT_MS_MAX)


def _check_time(what: str, time_ms: int | None, least: int, most: int) -> None:
    if time_ms is not None and not least <= time_ms <= most:
        raise InvalidRequest(f"{what} is {least} to {most}; this one is {time_ms}")


# -- leaving ---------------------------------------------------------------------------------------------------------


def _leave(group: Group | None, request: Heartbeat, view: TopicsView, settings: GroupSettings, now: Now) -> Decision:
    """Whoever is no member (any more) has left already: the first answer was lost."""
    answer = HeartbeatAnswer(request.member_id, request.member_epoch, settings.heartbeat_interval_ms, 0, None)
    member = None if group is None else group.members.get(request.member_id)
    if group is None or member is None:
        return Decision((), answer)
    if request.member_epoch == LEAVE:
        return Decision(without(group, [request.member_id], view, now), answer)
    if member.instance_id is None:
        raise InvalidRequest(f"only a member with a group.instance.id leaves with {LEAVE_STATIC}; use {LEAVE}")
    current = group.currents[request.member_id]
    if current.is_away:
        return Decision((), answer)
    away = Current(LEAVE_STATIC, current.epoch)
    return Decision((current_record(group.name, request.member_id, away),), answer)


def without(group: Group, members: Sequence[str], view: TopicsView, now: Now) -> tuple[GroupLogRecord, ...]:
    """The records of a group that these members have left, or were expelled from; the others get what was theirs."""
    left = {member_id: member for member_id, member in group.members.items() if member_id not in members}
    targets = {member_id: target for member_id, target in group.targets.items() if member_id in left}
    keys = [key(group.name, member_id) for member_id in members for key in (MemberKey, CurrentKey)]
    return (*map(gone, keys), *rebalance(group, left, targets, view, now).records)
