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
from tidelog.broker.kafka.call import HEAD_BYTES, Answer, Call
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
REMEMBERED_BYTES_MAX: Final = 1 << 10
"""Size of the largest heartbeat that a connection remembers."""
Read = Callable[[Call, Caller], ClassicHeartbeat | Heartbeat | None]


class Beats:
    """The heartbeats on one connection. A member says the same again and again, which is decoded once."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._last: dict[Key, tuple[tuple[int, bytes], ClassicHeartbeat | Heartbeat]] = {}
        """For each of the two requests the version and the bytes of the last small one, and what they mean."""

    def answer_now(self, call: Call, caller: Caller) -> Answer | None:
        """Extends a member's session and returns the answer; or None, without a change, if the answer must be an error,
        the coordinator cannot answer at once, or the request is no heartbeat. Raises `Malformed`."""
        read = _READERS.get(call.api.key)
        beat = None if read is None else self._decoded(call, caller, read)
        if beat is None or not self._may_read(caller, beat.group):
            return None
        groups = self._parts.face.groups
        if isinstance(beat, ClassicHeartbeat):
            return _classic_answer(call) if groups.classic.heard_now(beat) else None
        answer = groups.answer_now(beat)
        return _consumer_answer(call, answer) if isinstance(answer, HeartbeatAnswer) else None

    def _may_read(self, caller: Caller, group: str) -> bool:
        admission = self._parts.admission
        return admission.is_open or admission.may(caller, Operation.READ, Resource("Group", group))

    def _decoded(self, call: Call, caller: Caller, read: Read) -> ClassicHeartbeat | Heartbeat | None:
        form = call.version, bytes(call.frame[HEAD_BYTES:])
        last = self._last.get(call.api.key)
        if last is not None and last[0] == form:
            return last[1]
        beat = read(call, caller)
        if beat is not None and len(call.frame) <= REMEMBERED_BYTES_MAX:
            self._last[call.api.key] = form, beat
        return beat


def _read_classic(call: Call, caller: Caller) -> ClassicHeartbeat:
    """Decodes a Heartbeat request, without moving the call's reader. Raises `Malformed`."""
    reader, is_flexible = Reader(call.frame, call.reader.position), call.is_flexible
    group, generation = reader.string(is_flexible=is_flexible), reader.int32()
    member_id = reader.string(is_flexible=is_flexible)
    instance_id = reader.nullable_string(is_flexible=is_flexible) if call.version >= INSTANCE_SINCE else None
    return ClassicHeartbeat(group=group, member_id=member_id, instance_id=instance_id, generation=generation)


def _read_unchanged(call: Call, caller: Caller) -> Heartbeat | None:
    """Decodes a ConsumerGroupHeartbeat of a member that says nothing new, without moving the call's reader; returns
    None for any other. Raises `Malformed`."""
    reader = Reader(call.frame, call.reader.position)
    group, member_id = reader.string(is_flexible=True), reader.string(is_flexible=True)
    epoch, instance_id = reader.int32(), reader.nullable_string(is_flexible=True)
    if epoch <= JOIN or bytes(call.frame[reader.position :]) != _UNCHANGED[call.version]:
        return None
    member = Heartbeat(group=group, member_id=member_id, member_epoch=epoch, instance_id=instance_id)
    return structs.replace(member, client_id=call.client_id, client_host=caller.host)


def _classic_answer(call: Call) -> Answer:
    throttle = _NO_THROTTLE if call.version >= THROTTLE_SINCE else b""
    return [call.head() + throttle + _WELL + (NO_TAGS if call.is_flexible else b"")]


def _consumer_answer(call: Call, answer: HeartbeatAnswer) -> Answer:
    end = INT32.pack(answer.member_epoch) + INT32.pack(answer.heartbeat_interval_ms) + _NO_ASSIGNMENT
    return [call.head() + _CONSUMER_WELL + string(answer.member_id, is_flexible=True) + end]


_READERS: Final[Mapping[Key, Read]] = MappingProxyType(
    {Key.HEARTBEAT: _read_classic, Key.CONSUMER_GROUP_HEARTBEAT: _read_unchanged}
)
"""The decoders of heartbeats."""
