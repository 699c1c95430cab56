"""`Pipeline`: the requests in progress on one connection. Their answers are sent in the order of the requests.

Several Produce requests may be in progress, since producers send without waiting. Any other request begins when all
before it are answered, and runs alone, as in Kafka. So does a Produce request that is served in slices.
"""

from __future__ import annotations

import asyncio
from collections import deque

from tidelog.broker.kafka.apis import Key
from tidelog.broker.kafka.call import Answer, Call
from tidelog.broker.kafka.memory import ConnectionMemory
from tidelog.broker.kafka.metrics import CallStats
from tidelog.broker.kafka.produce import Production
from tidelog.broker.kafka.produce_form import ProduceForm
from tidelog.model.ports import ClientConnection, Clock


class Slot:
    """A request in progress and its answer."""

    __slots__ = ("answer", "call", "form", "has_error", "is_done", "production", "record_bytes", "size", "stats")

    def __init__(self, call: Call, size: int, stats: CallStats) -> None:
        self.call = call
        self.stats = stats
        self.size = size
        """Bytes of memory taken for the request."""
        self.production: Production | None = None
        self.form: ProduceForm | None = None
        """The form of a Produce request that was not decoded."""
        self.answer: Answer | None = None
        """The encoded answer; None for a request without one (acks=0)."""
        self.record_bytes = 0
        """Bytes of records in the answer."""
        self.is_done = self.has_error = False


class Pipeline:
    """The requests in progress on one connection, in order."""

    def __init__(self, stream: ClientConnection, memory: ConnectionMemory, clock: Clock, produce_max: int) -> None:
        self.answered_s = clock.monotonic_s()
        """Time of the last answer sent, in seconds of the monotonic clock."""
        self._stream = stream
        self._memory = memory
        self._clock = clock
        self._produce_max = produce_max
        self._slots: deque[Slot] = deque()
        self._is_alone = False
        """True while a request is in progress that must run alone."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = 0.0

    @property
    def is_empty(self) -> bool:
        """True if no request is in progress."""
        return not self._slots

    def has_turn(self, key: Key) -> bool:
        """Returns True if a request of this type may begin now."""
        if not self._slots:
            return True
        return key is Key.PRODUCE and not self._is_alone and len(self._slots) < self._produce_max

    def begin(self, slot: Slot, *, is_alone: bool = False) -> None:
        """Adds a request that has begun."""
        self._memory.hand_on()
        self._slots.append(slot)
        self._is_alone = is_alone

    def answer_now(self, slot: Slot, answer: Answer) -> None:
        """Sends the answer to a request that finished at once, with no other in progress."""
        self._memory.drop_frame()
        slot.answer = answer
        self._send(slot)

    def done(self, slot: Slot) -> None:
        """Marks a request as answered. Its answer is sent when all requests before it have theirs."""
        slot.is_done = True
        while self._slots and self._slots[0].is_done:
            first = self._slots.popleft()
            self._memory.give_back(first.size)
            self._send(first)
        if not self._slots:
            self._is_alone = False

    def _send(self, slot: Slot) -> None:
        stats = slot.stats
        self.answered_s = self._clock.monotonic_s()
        stats.requests += 1
        stats.errors += slot.has_error
        stats.received_bytes += slot.size
        stats.total.observe(self.answered_s - slot.call.began_s)
        if slot.answer is not None:
            stats.sent_bytes += sum(map(len, slot.answer))
            self._stream.send(slot.answer)
            if slot.record_bytes:
                self._memory.hold_records(slot.record_bytes)

    def expire_by(self, deadline_s: float) -> None:
        """Has the Produce requests in progress expire at their deadlines, of which one is `deadline_s` (loop time)."""
        # One timer for all, which is not cancelled when a request is answered: most are, long before their deadline.
        if self._timer is None or deadline_s < self._timer_s:
            self._stop_timer()
            self._timer_s = deadline_s
            self._timer = asyncio.get_running_loop().call_at(deadline_s, self._expire, deadline_s)

    def _expire(self, due_s: float) -> None:
        self._stop_timer()
        for production in [slot.production for slot in self._slots if slot.production is not None]:
            if production.deadline_s <= due_s:
                production.expire()
            else:
                self.expire_by(production.deadline_s)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def leave(self) -> None:
        """Drops all requests, since the connection is lost. Records not appended yet are not appended."""
        self._stop_timer()
        for slot in self._slots:
            if slot.production is not None:
                slot.production.leave()
            self._memory.give_back(slot.size)
        self._slots.clear()
