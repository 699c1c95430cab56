"""Decisions about heartbeats of consumer group members."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tidelog.groups.answers import heartbeat_answer
from tidelog.groups.assignors.subscriber import Partition
from tidelog.groups.decide_joins import join
from tidelog.groups.decide_leaves import leave
from tidelog.groups.decision import Decision
from tidelog.groups.group import Current, Group, current_record
from tidelog.groups.rebalance import rebalance
from tidelog.groups.reconcile import could_be_given, gets_back, reconciled
from tidelog.groups.records import GroupLogRecord
from tidelog.groups.settings import GroupSettings, Now, TopicsView
from tidelog.groups.shard import Shard
from tidelog.groups.wishes import subscription, updated
from tidelog.model.errors import FencedMember, InvalidRequest, UnknownMember
from tidelog.model.groups import JOIN, LEAVE, LEAVE_STATIC, Heartbeat, HeartbeatAnswer

NOTHING: Final = (None,) * 7


def heartbeat(shard: Shard, request: Heartbeat, view: TopicsView, settings: GroupSettings, now: Now) -> Decision:
    """Decides a heartbeat: join, leave, or a member's state and subscription. Raises `UnknownMember`, `FencedMember`,
    `InstanceIdInUse`, `UnsupportedAssignor`, `GroupFull`, `InvalidRequest`, or `UnknownGroup` for a classic group."""
    if request.member_epoch > JOIN:
        return _beat(member_of(shard, request.group, request.member_id), request, view, settings, now)
    if request.member_epoch == JOIN:
        return join(shard, request, view, settings, now)
    group = shard.groups.get(request.group)
    if request.member_epoch in (LEAVE, LEAVE_STATIC):
        return leave(group, request, view, settings, now)
    raise InvalidRequest(
        f"{request.member_epoch} is no member epoch: {JOIN} joins, {LEAVE} leaves, {LEAVE_STATIC} leaves and keeps "
        "the partitions"
    )


def member_of(shard: Shard, name: str, member_id: str) -> Group:
    """Returns the group, if it has this member. Raises `UnknownMember`."""
    group = shard.groups.get(name)
    if group is None or member_id not in group.members:
        raise UnknownMember(f"group {name!a} has no member {member_id!a} (any more); join under another id")
    return group


def has_news(shard: Shard, request: Heartbeat) -> bool:
    """Returns True if this heartbeat, decided again, would tell its member something new."""
    group = shard.groups.get(request.group)
    current = None if group is None else group.currents.get(request.member_id)
    # Deciding will refuse the heartbeat, or tell the member its epoch: either is news.
    if group is None or current is None or current.epoch != request.member_epoch:
        return True
    return current.epoch != group.epoch or not current.is_told or could_be_given(group, request.member_id, current)


def unchanged(shard: Shard, request: Heartbeat, settings: GroupSettings) -> HeartbeatAnswer | None:
    """Returns the answer to a heartbeat that says nothing new and to whose member there is nothing new to say, as most
    are; None for any other. `heartbeat` decides the same, at several times the cost."""
    if has_news(shard, request):
        return None
    group = shard.groups[request.group]
    member = group.members[request.member_id]
    # An empty text or list is a change; only None is not.
    said = (request.owned, request.topics, request.pattern, request.assignor, request.rack,
            request.session_timeout_ms, request.rebalance_timeout_ms)  # fmt: skip
    if said != NOTHING or (request.client_id, request.client_host) != (member.client_id, member.client_host):
        return None
    return heartbeat_answer(member, group.currents[request.member_id], settings)


def _beat(group: Group, request: Heartbeat, view: TopicsView, settings: GroupSettings, now: Now) -> Decision:
    current, was = group.currents[request.member_id], group.members[request.member_id]
    owned = None if request.owned is None else _owned_partitions(request)
    member = updated(was, request, settings)
    if current.epoch != request.member_epoch:
        # The member missed the last answer. It is told again, and obeyed in nothing: this may be an old heartbeat.
        _check_belated(current, request, owned, wants_more=subscription(member) != subscription(was))
        return Decision((), heartbeat_answer(was, replace(current, is_told=False), settings))
    records: tuple[GroupLogRecord, ...] = () if member == was else (member,)
    epoch, target = group.epoch, group.target_of(request.member_id)
    # A member never gets back within one epoch what it gave up: a commit from before would count after. So there is
    # another epoch first.
    if subscription(member) != subscription(was) or gets_back(current, target, epoch, owned):
        made = rebalance(group, {**group.members, request.member_id: member}, group.targets, view, now)
        epoch, target, records = made.epoch, made.targets[request.member_id], (*records, *made.records)
    after = reconciled(current, target, epoch, group.owners, request.member_id, owned)
    # Most heartbeats change nothing: they write nothing, and cost no append.
    if after != current:
        records = (*records, current_record(group.name, request.member_id, after))
    return Decision(records, heartbeat_answer(member, after, settings))


def _owned_partitions(request: Heartbeat) -> frozenset[Partition]:
    return frozenset((entry.topic, number) for entry in request.owned or () for number in entry.partitions)


def _check_belated(
    current: Current, request: Heartbeat, said: frozenset[Partition] | None, *, wants_more: bool
) -> None:
    """Raises `FencedMember` unless the heartbeat has the member's previous epoch and nothing new. Such a member has
    missed the answer with its new epoch; the heartbeat may be a delayed one, so nothing in it takes effect."""
    # To pass over something new would let the member believe that it was obeyed; to obey could undo what is newer.
    is_next = request.member_epoch == current.previous_epoch and not current.is_away
    owns_more = said is not None and any(current.of(partition) is None for partition in said)
    if not is_next or owns_more or wants_more:
        raise FencedMember(
            f"member {request.member_id} is at epoch {current.epoch}, and spoke with {request.member_epoch}; "
            "it owns nothing any more, and joins again, under another id"
        )
