"""Descriptions of classic groups for administrators."""

from __future__ import annotations

from typing import Final

from tidelog.groups.classic.consumer_protocol import CONSUMER, assigned_partitions, subscribed_topics
from tidelog.groups.classic.state import ClassicGroup, Member
from tidelog.groups.settings import TopicsView
from tidelog.model.groups import GroupDescription, GroupListed, MemberDescription, grouped, pairs

NO_NODE: Final = -1
"""Placeholder for the coordinator's node id, which the caller fills in."""


def describe_classic(group: ClassicGroup, view: TopicsView) -> GroupDescription:
    """Returns the description of a group, with its members sorted by id. Assigned partitions that do not exist are left
    out."""
    members = tuple(_described(group, member, view) for _, member in sorted(group.members.items()))
    return GroupDescription(*_summary(group), members, kind="classic", protocol_type=group.protocol_type)


def list_classic(group: ClassicGroup) -> GroupListed:
    """Returns the group's entry for a list of groups."""
    members = len(group.members)
    return GroupListed(*_summary(group), members, kind="classic", protocol_type=group.protocol_type)


def _summary(group: ClassicGroup) -> tuple[str, str, int, str, int]:
    return group.name, group.phase.value, group.generation, group.protocol or "", NO_NODE


def _described(group: ClassicGroup, member: Member, view: TopicsView) -> MemberDescription:
    """Returns a member's description. Topics and partitions are decoded for consumers only, since other protocols have
    their own formats."""
    metadata, is_consumer = member.metadata(group.protocol), group.protocol_type == CONSUMER
    # A leader may have assigned anything; what does not exist is not shown.
    given = pairs(assigned_partitions(member.assignment)) if is_consumer else []
    owned = grouped(
        [partition for partition in given if partition[0] in view and 0 <= partition[1] < view[partition[0]].partitions]
    )
    return MemberDescription(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rack=None,
        member_epoch=group.generation,
        topics=subscribed_topics(metadata) if is_consumer else (),
        pattern="",
        owned=owned,
        target=owned,
        metadata=metadata,
        assignment=member.assignment,
    )
