"""ConsumerGroupHeartbeat: the members of groups with server-side assignment (KIP-848).

Topics are named by id. A client of version 0 without a member id is given one; from version 1 on clients generate it. A
fenced member may rejoin under its old id, with no partitions. If the coordinator still has the old member with another
subscription, it answers FENCED_MEMBER_EPOCH; the broker then lets the old member leave and joins again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import structs

from tidelog.broker.kafka.call import Call
from tidelog.broker.kafka.groups.trees import (
    Tree,
    deadline_s,
    group_code,
    id_of,
    mutate,
    require,
    topic_of_id,
)
from tidelog.broker.kafka.listener_parts import Parts
from tidelog.model.access import ANY_NAME, Caller, Operation, Resource
from tidelog.model.errors import CoordinatorNotAvailable, FencedMember, TidelogError
from tidelog.model.groups import JOIN, LEAVE, Heartbeat, HeartbeatAnswer, TopicPartitions, check_group_name, grouped

IDS_DRAWN_SINCE: Final = 1
NOT_SAID: Final = -1


async def consumer_group_heartbeat(parts: Parts, call: Call, request: Any, caller: Caller) -> Tree:
    """Answers a ConsumerGroupHeartbeat."""
    try:
        beat = _heartbeat(parts, call, request, caller)
        _check_rights(parts, beat, caller)
        if beat.member_epoch == JOIN:
            await mutate(parts, call, caller)
        return _answered(parts, await _ask(parts, beat))
    except TidelogError as error:
        return {
            "error_code": group_code(error),
            "error_message": error.message,
            "member_id": request.member_id or None,
            "member_epoch": request.member_epoch,
            "heartbeat_interval": 0,
            "assignment": None,
        }


def _heartbeat(parts: Parts, call: Call, request: Any, caller: Caller) -> Heartbeat:
    member_id, topics = request.member_id, request.subscribed_topic_names
    if not member_id and call.version < IDS_DRAWN_SINCE and request.member_epoch == JOIN:
        member_id = parts.face.groups.new_member_id()
    rebalance_ms = request.rebalance_timeout
    return Heartbeat(
        group=check_group_name(request.group_id),
        member_id=member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        client_id=call.client_id,
        client_host=caller.host,
        rack=request.rack_id,
        topics=None if topics is None else tuple(topics),
        pattern=getattr(request, "subscribed_topic_regex", None),
        assignor=request.server_assignor,
        rebalance_timeout_ms=None if rebalance_ms == NOT_SAID else rebalance_ms,
        owned=None if request.topic_partitions is None else _owned(parts, request.topic_partitions),
    )


def _owned(parts: Parts, topics: Sequence[Any]) -> tuple[TopicPartitions, ...]:
    """Returns the partitions that a member says it owns, without those of deleted topics."""
    names = [(topic_of_id(parts, topic.topic_id) if topic.topic_id else None, topic.partitions) for topic in topics]
    return grouped([(name, number) for name, numbers in names if name is not None for number in numbers])


def _check_rights(parts: Parts, beat: Heartbeat, caller: Caller) -> None:
    """Raises `NotAuthorized` unless the caller may read the group and the topics subscribed to. A regex subscription
    needs the right to read all topics."""
    require(parts, caller, Operation.READ, beat.group)
    for topic in (*(beat.topics or ()), *([ANY_NAME] if beat.pattern else ())):
        parts.refuse_unauthorized(caller, Operation.READ, Resource("Topic", topic))


async def _ask(parts: Parts, beat: Heartbeat) -> HeartbeatAnswer:
    groups, until_s = parts.face.groups, deadline_s()
    try:
        return await groups.ask(beat, deadline_s=until_s)
    except FencedMember:
        if beat.member_epoch != JOIN:
            raise
    await groups.ask(structs.replace(beat, member_epoch=LEAVE), deadline_s=until_s)
    return await groups.ask(beat, deadline_s=until_s)


def _answered(parts: Parts, answer: HeartbeatAnswer) -> Tree:
    assignment = None if answer.assignment is None else {"topic_partitions": _by_id(parts, answer.assignment)}
    return {
        "error_code": 0,
        "error_message": None,
        "member_id": answer.member_id,
        "member_epoch": answer.member_epoch,
        "heartbeat_interval": answer.heartbeat_interval_ms,
        "assignment": assignment,
    }


def _by_id(parts: Parts, assignment: Sequence[TopicPartitions]) -> list[Tree]:
    """Returns an assignment with topic ids. Raises `CoordinatorNotAvailable` if this broker does not know a topic of it
    yet, so that the member asks again."""
    entries = []
    for entry in assignment:
        topic_id = id_of(parts, entry.topic)
        if topic_id is None:
            raise CoordinatorNotAvailable(f"this broker does not know topic {entry.topic} (yet); ask again")
        entries.append({"topic_id": topic_id, "partitions": list(entry.partitions)})
    return entries
