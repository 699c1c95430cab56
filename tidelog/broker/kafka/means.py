"""Admission of a Kafka request: checks that it has its turn, memory for request and answer, an event loop that keeps
up, and quota.

A request that lacks one of them waits, and its connection is not read meanwhile, because Kafka's protocol has no answer
"try again later". While the event loop is late, the brake (overload protection shared with HTTP) holds up fetches and
admin requests first, then produces. Group and metadata requests are never held up. A wait for answer memory or for the
event loop lasts `room_s_max` at most. A request that lacks memory for itself as long as any request may wait
(`request.timeout.ms.max`) loses its connection: Kafka's clients repeat it then, as they do where Kafka itself reads no
more.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from tidelog.broker.face.shedding import BRAKED_FROM, RequestClass
from tidelog.broker.kafka.admin.table import CALLS
from tidelog.broker.kafka.apis import Key
from tidelog.broker.kafka.call import Call
from tidelog.broker.kafka.listener_parts import Parts
from tidelog.broker.kafka.memory import ConnectionMemory, has_no_room
from tidelog.broker.kafka.pacing import Pacing
from tidelog.model.access import Caller

ROOM_LOOK_S: Final = 0.02
BRAKE_LOOK_S: Final = 0.1
"""Seconds between two checks whether a request held up by a late event loop may begin."""
BRAKED: Final[Mapping[Key, int]] = MappingProxyType(
    {
        **dict.fromkeys((*CALLS, Key.LIST_OFFSETS), BRAKED_FROM[RequestClass.ADMIN]),
        Key.FETCH: BRAKED_FROM[RequestClass.READ],
        Key.PRODUCE: BRAKED_FROM[RequestClass.PRODUCE],
    }
)
"""Brake level from which on a request type is held up. Types that are not listed never are."""


class Lack(NamedTuple):
    """The resource that a request lacks, and the seconds until it is checked again."""

    reason: str
    look_s: float


class Means:
    """Admission checks for the requests of one connection."""

    def __init__(self, parts: Parts, memory: ConnectionMemory) -> None:
        self.pacing = Pacing(parts.face.shares, parts.limits)
        self._parts = parts
        self._memory = memory
        self._shares = parts.face.shares
        self._brake = parts.admission.shedding.brake

    def lack(self, call: Call, caller: Caller) -> Lack | None:
        """Returns the resource that a request lacks; None if it may begin. Then its memory is taken, and it is charged
        to the request quota. Raises `Overloaded` once it has waited too long for its memory."""
        if call.api.key is Key.FETCH and self._parts.turn.has_many_bytes:
            return Lack("turn", 0.0)
        if call.api.key is Key.FETCH or self._brake.level:
            broker_lack = self._lack_of_broker(call.api.key)
            if broker_lack is not None and self._has_waited_s(call) < self._parts.limits.room_s_max:
                return broker_lack
        if not self._memory.take_frame(call.reader.end):
            return Lack("request memory", ROOM_LOOK_S)
        if self._shares.are_set and (pause_s := self.pacing.pause_s(call, caller)) > 0:
            return Lack("share", pause_s)
        return None

    def _lack_of_broker(self, key: Key) -> Lack | None:
        if key is Key.FETCH and has_no_room(self._parts.admission):
            return Lack("answer memory", ROOM_LOOK_S)
        level = self._brake.level
        if level and level >= BRAKED.get(key, level + 1):
            return Lack("lag", BRAKE_LOOK_S)
        return None

    def _has_waited_s(self, call: Call) -> float:
        return self._parts.face.clock.monotonic_s() - call.began_s
