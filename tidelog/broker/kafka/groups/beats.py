"""Fast path for heartbeats of classic group members: answers them at once if they need no error, as nearly all do.

Encoded and decoded by hand. A heartbeat that has an error, or has to wait, goes to `classic_members.heartbeat`.
"""

from __future__ import annotations

from typing import Final

from tidelog.broker.kafka.call import Answer, Call
from tidelog.broker.kafka.listener_parts import Parts
from tidelog.model.access import Caller, Operation, Resource
from tidelog.model.classic_groups import ClassicHeartbeat
from tidelog.model.kafka_wire import INT16, INT32, NO_TAGS, Reader

THROTTLE_SINCE: Final = 1
INSTANCE_SINCE: Final = 3
_WELL: Final = INT16.pack(0)
_NO_THROTTLE: Final = INT32.pack(0)


def read_heartbeat(call: Call) -> ClassicHeartbeat:
    """Decodes a Heartbeat request, without moving the call's reader. Raises `Malformed`."""
    reader, is_flexible = Reader(call.frame, call.reader.position), call.is_flexible
    group, generation = reader.string(is_flexible=is_flexible), reader.int32()
    member_id = reader.string(is_flexible=is_flexible)
    instance_id = reader.nullable_string(is_flexible=is_flexible) if call.version >= INSTANCE_SINCE else None
    return ClassicHeartbeat(group=group, member_id=member_id, instance_id=instance_id, generation=generation)


def answer_well(parts: Parts, call: Call, caller: Caller) -> Answer | None:
    """Extends the member's session and returns the answer without an error; returns None, without a change, if the
    answer must be an error or the coordinator cannot answer at once. Raises `Malformed`."""
    beat = read_heartbeat(call)
    if not parts.admission.may(caller, Operation.READ, Resource("Group", beat.group)):
        return None
    if not parts.face.groups.classic.heard_now(beat):
        return None
    throttle = _NO_THROTTLE if call.version >= THROTTLE_SINCE else b""
    return [call.head() + throttle + _WELL + (NO_TAGS if call.is_flexible else b"")]
