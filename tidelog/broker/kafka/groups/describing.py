"""ListGroups, DescribeGroups and ConsumerGroupDescribe.

Each broker lists the groups that it coordinates, and clients merge the lists of all brokers. Any broker describes any
group. A group that has committed offsets but never had a member is shown as an empty classic group. DescribeGroups
describes classic groups only, and ConsumerGroupDescribe consumer groups only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tidelog.broker.kafka.call import Call
from tidelog.broker.kafka.groups.trees import Tree, deadline_s, group_code, id_of, require
from tidelog.broker.kafka.listener_parts import Parts
from tidelog.model.access import Caller, Operation, Resource
from tidelog.model.errors import TidelogError, UnknownGroup
from tidelog.model.groups import GroupDescription, GroupListed, MemberDescription, TopicPartitions

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
DEAD: Final = "Dead"
"""State in which versions before 6 report a group that does not exist."""
UNKNOWN_SAID_SINCE: Final = 6
NOT_REPORTED: Final = -(1 << 31)
"""Value of `authorized_operations` in an answer that does not report them."""
CONSUMER_MEMBER: Final = 1


def kind_of(group: GroupListed | GroupDescription) -> str:
    """Returns the group type shown to Kafka clients: `classic` or `consumer`."""
    return CLASSIC if group.is_simple else group.kind


def _type_of(group: GroupListed | GroupDescription) -> str:
    """Returns the protocol type of the members; empty if the group never had any."""
    return CONSUMER if kind_of(group) == CONSUMER else group.protocol_type


async def list_groups(parts: Parts, call: Call, request: Any, caller: Caller) -> Tree:
    """Lists the groups that this broker coordinates and the caller may describe."""
    states = {state.lower() for state in getattr(request, "states_filter", ())}
    kinds = {kind.lower() for kind in getattr(request, "types_filter", ())}
    try:
        listed = await parts.face.groups.list_here(deadline_s=deadline_s())
    except TidelogError as error:
        return {"error_code": group_code(error), "groups": []}
    groups = [
        {
            "group_id": group.group,
            "protocol_type": _type_of(group),
            "group_state": group.state,
            "group_type": kind_of(group),
        }
        for group in listed
        if (not states or group.state.lower() in states)
        and (not kinds or kind_of(group) in kinds)
        and parts.admission.may(caller, Operation.DESCRIBE, Resource("Group", group.group))
    ]
    return {"error_code": 0, "groups": groups}


async def _description(parts: Parts, group: str, caller: Caller, kind: str) -> GroupDescription:
    """Returns the description of a group of the type `kind`. Raises `UnknownGroup`, also for a group of the other
    type."""
    require(parts, caller, Operation.DESCRIBE, group)
    description = await parts.face.groups.describe(group, deadline_s())
    if kind_of(description) != kind:
        raise UnknownGroup(f"group {group!a} is no {kind} group")
    return description


async def describe_groups(parts: Parts, call: Call, request: Any, caller: Caller) -> Tree:
    """Describes classic groups (DescribeGroups)."""
    return {"groups": [await _described(parts, call, name, caller, CLASSIC) for name in dict.fromkeys(request.groups)]}


async def consumer_group_describe(parts: Parts, call: Call, request: Any, caller: Caller) -> Tree:
    """Describes groups with server-side assignment (ConsumerGroupDescribe, KIP-848)."""
    names = dict.fromkeys(request.group_ids)
    return {"groups": [await _described(parts, call, name, caller, CONSUMER) for name in names]}


async def _described(parts: Parts, call: Call, name: str, caller: Caller, kind: str) -> Tree:
    try:
        group = await _description(parts, name, caller, kind)
    except UnknownGroup as error:
        is_said = kind == CONSUMER or call.version >= UNKNOWN_SAID_SINCE
        code, state = group_code(error) if is_said else 0, DEAD if kind == CLASSIC else ""
        return _tree(name, code, error.message) | {"group_state": state}
    except TidelogError as error:
        return _tree(name, group_code(error), error.message)
    return _tree(name) | {
        "group_state": group.state,
        "protocol_type": group.protocol_type,
        "protocol_data": group.assignor,
        "group_epoch": group.group_epoch,
        "assignment_epoch": group.group_epoch,
        "assignor_name": group.assignor,
        "members": [_member(parts, member) for member in group.members],
    }


def _tree(name: str, code: int = 0, message: str | None = None) -> Tree:
    """Returns the description of a group without members. It has the fields of both DescribeGroups and
    ConsumerGroupDescribe; the encoder leaves out those that the answer does not have."""
    return {
        "error_code": code,
        "error_message": message,
        "group_id": name,
        "group_state": "",
        "protocol_type": "",
        "protocol_data": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": [],
        "authorized_operations": NOT_REPORTED,
    }


def _member(parts: Parts, member: MemberDescription) -> Tree:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack,
        "member_epoch": member.member_epoch,
        "client_id": member.client_id,
        "client_host": f"/{member.client_host}",  # as Java shows an address, and tools take it apart
        "member_metadata": member.metadata,
        "member_assignment": member.assignment,
        "subscribed_topic_names": list(member.topics),
        "subscribed_topic_regex": member.pattern or None,
        "assignment": {"topic_partitions": _partitions(parts, member.owned)},
        "target_assignment": {"topic_partitions": _partitions(parts, member.target)},
        "member_type": CONSUMER_MEMBER,
    }


def _partitions(parts: Parts, listed: Sequence[TopicPartitions]) -> list[Tree]:
    """Returns the partitions with topic ids, without those of topics that this broker does not know."""
    ids = [(entry, id_of(parts, entry.topic)) for entry in listed]
    return [
        {"topic_id": topic_id, "topic_name": entry.topic, "partitions": list(entry.partitions)}
        for entry, topic_id in ids
        if topic_id is not None
    ]
