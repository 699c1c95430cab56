"""Decisions about whole groups: list, describe, delete."""

from __future__ import annotations

from tidelog.groups.classic.descriptions import NO_NODE, describe_classic, list_classic
from tidelog.groups.decision import Decision
from tidelog.groups.group import Group
from tidelog.groups.records import gone
from tidelog.groups.settings import TopicsView
from tidelog.groups.shard import Shard
from tidelog.model.errors import GroupNotEmpty, UnknownGroup
from tidelog.model.groups import (
    DeleteGroup,
    DescribeGroup,
    GroupDescription,
    GroupDone,
    GroupListed,
    GroupsListed,
    MemberDescription,
    check_group_name,
    grouped,
)


def delete(shard: Shard, request: DeleteGroup) -> Decision:
    """Deletes a group. Raises `UnknownGroup` or `GroupNotEmpty`."""
    group = _group_named(shard, request.group)
    # Members would go on with partitions that the coordinator has given to nobody.
    if group.has_members:
        raise GroupNotEmpty(f"group {group.name} has {group.members_count} members; stop them first")
    # All keys in one batch: whatever was left behind would be the group again at the next load.
    return Decision(tuple(gone(key) for key in group.live_keys()), GroupDone())


def describe(shard: Shard, request: DescribeGroup, view: TopicsView) -> Decision:
    """Describes a group. Raises `UnknownGroup`."""
    group = _group_named(shard, request.group)
    if group.classic is not None:
        return Decision((), describe_classic(group.classic, view))
    members = tuple(_described(group, member_id) for member_id in sorted(group.members))
    return Decision((), GroupDescription(*_summary(group), members, is_simple=group.is_simple))


def list_groups(shard: Shard) -> Decision:
    """Lists all groups of the shard (one partition of `__consumer_offsets`), sorted by name."""
    return Decision((), GroupsListed(tuple(_listed(group) for _, group in sorted(shard.groups.items()))))


def _listed(group: Group) -> GroupListed:
    if group.classic is not None:
        return list_classic(group.classic)
    return GroupListed(*_summary(group), len(group.members), is_simple=group.is_simple)


def _summary(group: Group) -> tuple[str, str, int, str, int]:
    assignor = "" if group.record is None else group.record.assignor
    return group.name, group.state.value, group.epoch, assignor, NO_NODE


def _group_named(shard: Shard, name: str) -> Group:
    group = shard.groups.get(check_group_name(name))
    if group is None:
        raise UnknownGroup(f"there is no consumer group {name}")
    return group


def _described(group: Group, member_id: str) -> MemberDescription:
    member, current = group.members[member_id], group.currents[member_id]
    return MemberDescription(
        member_id=member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rack=member.rack,
        member_epoch=current.epoch,
        topics=member.topics,
        pattern=member.pattern,
        # What a member was told to give up is its own until it has said that it did.
        owned=grouped((*current.held, *current.revoking)),
        target=grouped(tuple(group.target_of(member_id))),
    )
