"""Admission of a Kafka request before it begins: a turn, room for its bytes and its answer's, an event loop that keeps
up, and a share that its client has not used up.

A request that lacks something waits, and its connection is not read meanwhile: clients of Kafka know no "come later".
While the loop runs late, the brake that is HTTP's, too, holds up reads and administration first, then produces; what
keeps the members of groups alive, and tells clients where else to go, is never held up. No wait for room or the loop is
longer than `room_s_max`, since a client that gives up asks again.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from tidelog.broker.face.brake import Brake
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
"""How often a request that waits looks whether it may begin."""
BRAKED: Final[Mapping[Key, int]] = MappingProxyType(
    {
        **dict.fromkeys((*CALLS, Key.LIST_OFFSETS), BRAKED_FROM[RequestClass.ADMIN]),
        Key.FETCH: BRAKED_FROM[RequestClass.READ],
        Key.PRODUCE: BRAKED_FROM[RequestClass.PRODUCE],
    }
)
"""The level of the brake from which on a call is held up; the others never are."""


class Lack(NamedTuple):
    """Says what a request lacks, and after how many seconds to look again."""

    reason: str
    look_s: float


class Means:
    """Judges the requests of one connection."""

    def __init__(self, parts: Parts, memory: ConnectionMemory) -> None:
        self.pacing = Pacing(parts.face.shares, parts.limits)
        self._parts = parts
        self._memory = memory

    def lack(self, call: Call, caller: Caller) -> Lack | None:
        """Returns what a request lacks; None if it may begin: its memory is taken then, and it is counted."""
        if call.api.key is Key.FETCH and self._parts.turn.has_many_bytes:
            return Lack("turn", 0.0)
        if (broker_lack := self._lack_of_broker(call)) is not None and self._has_waited_s(
            call
        ) < self._parts.limits.room_s_max:
            return broker_lack
        if not self._memory.take_frame(len(call.frame)):
            return Lack("request memory", ROOM_LOOK_S)
        pause_s = self.pacing.pause_s(call, caller)
        return Lack("share", pause_s) if pause_s > 0 else None

    def _lack_of_broker(self, call: Call) -> Lack | None:
        if call.api.key is Key.FETCH and has_no_room(self._parts.admission):
            return Lack("answer memory", ROOM_LOOK_S)
        if self._brake.level and self._brake.level >= BRAKED.get(call.api.key, self._brake.level + 1):
            return Lack("lag", BRAKE_LOOK_S)
        return None

    @property
    def _brake(self) -> Brake:
        return self._parts.admission.shedding.brake

    def _has_waited_s(self, call: Call) -> float:
        return self._parts.face.clock.monotonic_s() - call.began_s
