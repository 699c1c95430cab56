"""Fast path for heartbeats: answers those of group members at once that need no error and change nothing, as nearly all
do.

Encoded and decoded by hand. A heartbeat that has an error, says anything new, or has to wait goes to
`classic_members.heartbeat` or to `consumer_heartbeat`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from msgspec import structs

from tidelog.broker.kafka.apis import Key
from tidelog.broker.kafka.call import Answer, Call
from tidelog.broker.kafka.listener_parts import Parts
from tidelog.model.access import Caller, Operation, Resource
from tidelog.model.classic_groups import ClassicHeartbeat
from tidelog.model.groups import JOIN, Heartbeat, HeartbeatAnswer
from tidelog.model.kafka_wire import INT16, INT32, NO_TAGS, Reader, string

THROTTLE_SINCE: Final = 1
INSTANCE_SINCE: Final = 3
_WELL: Final = INT16.pack(0)
_NO_THROTTLE: Final = INT32.pack(0)
_UNCHANGED: Final = (b"\0\xff\xff\xff\xff\0\0\0\0", b"\0\xff\xff\xff\xff\0\0\0\0\0")
"""The end of a ConsumerGroupHeartbeat that says nothing new, by version: all fields behind the instance id are null."""
_CONSUMER_WELL: Final = _NO_THROTTLE + _WELL + b"\0"
"""Throttle time, error code and a null error message."""
_NO_ASSIGNMENT: Final = b"\xff" + NO_TAGS


def read_heartbeat(call: Call) -> ClassicHeartbeat:
    """Decodes a Heartbeat request, without moving the call's reader. Raises `Malformed`."""
    reader, is_flexible = Reader(call.frame, call.reader.position), call.is_flexible
    group, generation = reader.string(is_flexible=is_flexible), reader.int32()
    member_id = reader.string(is_flexible=is_flexible)
    instance_id = reader.nullable_string(is_flexible=is_flexible) if call.version >= INSTANCE_SINCE else None
    return ClassicHeartbeat(group=group, member_id=member_id, instance_id=instance_id, generation=generation)


def read_unchanged(call: Call, caller: Caller) -> Heartbeat | None:
    """Decodes a ConsumerGroupHeartbeat of a member that says nothing new, without moving the call's reader; returns
    None for any other. Raises `Malformed`."""
    reader = Reader(call.frame, call.reader.position)
    group, member_id = reader.string(is_flexible=True), reader.string(is_flexible=True)
    epoch, instance_id = reader.int32(), reader.nullable_string(is_flexible=True)
    if epoch <= JOIN or bytes(call.frame[reader.position :]) != _UNCHANGED[call.version]:
        return None
    member = Heartbeat(group=group, member_id=member_id, member_epoch=epoch, instance_id=instance_id)
    return structs.replace(member, client_id=call.client_id, client_host=caller.host)


def _answer_classic(parts: Parts, call: Call, caller: Caller) -> Answer | None:
    beat = read_heartbeat(call)
    if not _may_read(parts, caller, beat.group) or not parts.face.groups.classic.heard_now(beat):
        return None
    throttle = _NO_THROTTLE if call.version >= THROTTLE_SINCE else b""
    return [call.head() + throttle + _WELL + (NO_TAGS if call.is_flexible else b"")]


def _answer_consumer(parts: Parts, call: Call, caller: Caller) -> Answer | None:
    beat = read_unchanged(call, caller)
    if beat is None or not _may_read(parts, caller, beat.group):
        return None
    answer = parts.face.groups.answer_now(beat)
    if not isinstance(answer, HeartbeatAnswer):
        return None
    end = INT32.pack(answer.member_epoch) + INT32.pack(answer.heartbeat_interval_ms) + _NO_ASSIGNMENT
    return [call.head() + _CONSUMER_WELL + string(answer.member_id, is_flexible=True) + end]


def _may_read(parts: Parts, caller: Caller, group: str) -> bool:
    return parts.admission.may(caller, Operation.READ, Resource("Group", group))


BEATS: Final[Mapping[Key, Callable[[Parts, Call, Caller], Answer | None]]] = MappingProxyType(
    {Key.HEARTBEAT: _answer_classic, Key.CONSUMER_GROUP_HEARTBEAT: _answer_consumer}
)
"""Functions that extend a member's session and return the answer; or None, without a change, if the answer must be an
error, or the coordinator cannot answer at once. They raise `Malformed`."""
