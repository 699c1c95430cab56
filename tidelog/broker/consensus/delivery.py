"""Delivers chosen values to the state machine: in order, each position once, and never without its payload, unless that
is lost on all replicas.

The engine applies values by their names alone, and may jump over positions that every peer has truncated. The state
machine can do neither. So a value without its payload blocks the values behind it until a peer has sent a copy, and a
gap blocks them until a snapshot covers it.

The owner of the delivery decides whether a payload is lost, so that the state machine has to go on without it
(`is_lost`). A log of records can do so; a state machine whose next state depends on every entry cannot.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from tidelog.model.ports import Buffer
from tidelog.replication.paxos.apply import Verdict
from tidelog.replication.paxos.events import Applied
from tidelog.replication.paxos.state import Value


class Delivery:
    """Delivery of one log's chosen values to its state machine.

    `deliver` is called with each value and its payload, None if the value has none or its payload is lost. `position`
    is the next to be delivered; `read` returns a payload; `floor` returns where the log begins; `is_lost` is asked
    about the next value if its payload cannot be read.
    """

    def __init__(
        self,
        position: int,
        read: Callable[[int, Value], Buffer | None],
        deliver: Callable[[Applied, Buffer | None], None],
        floor: Callable[[], int],
        is_lost: Callable[[Applied], bool] = lambda _: False,
    ) -> None:
        self.position = position
        self._end = position
        self._read = read
        self._deliver = deliver
        self._floor = floor
        self._is_lost = is_lost
        self._waiting: deque[Applied] = deque()

    @property
    def needs_snapshot(self) -> int | None:
        """The position that a snapshot must reach at least to close a gap before the next value; None if there is no
        such gap."""
        # With nothing in the queue a jump is known by `_end` alone.
        following = self._waiting[0].position if self._waiting else self._end
        # The engine has jumped: nobody sends the positions in between any more.
        if following > self.position:
            return following
        floor = self._floor()
        # The log begins behind a payload that is lacking, so no peer has it as an entry any more.
        return floor if floor > self.position else None

    @property
    def blocking(self) -> Applied | None:
        """The value that is next, if it has not been delivered because its payload is missing or cannot be taken now;
        else None."""
        following = self._waiting[0] if self._waiting else None
        return following if following is not None and following.position == self.position else None

    @property
    def is_held_up(self) -> bool:
        """True while a chosen value waits for its payload or for a snapshot."""
        return self.blocking is not None or self.needs_snapshot is not None

    def applied(self, applied: Applied) -> None:
        """Takes the next value that the engine has applied, and delivers all values that can be delivered now."""
        self._end = max(self._end, applied.position + 1)
        self._waiting.append(applied)
        self.advance()

    def jumped(self, position: int) -> None:
        """Notes that the engine has jumped to `position`, without the values below it."""
        self._end = max(self._end, position)
        self.advance()

    def installed(self, position: int) -> None:
        """Continues at `position`, since a snapshot of everything below it is installed."""
        assert position >= self.position
        self.position = position
        self._end = max(self._end, position)
        self.advance()

    def advance(self) -> None:
        """Delivers the values that are next and whose payload can be read. Called again when a payload has arrived."""
        # What a snapshot has bridged is dropped here.
        while self._waiting and self._waiting[0].position <= self.position:
            applied = self._waiting[0]
            if applied.position == self.position:
                # A void value is never shown to the state machine, on any replica.
                counts = applied.value.digest and applied.verdict is Verdict.APPLIED
                payload = self._read(applied.position, applied.value) if counts else None
                # The state machine takes entries in order only: what lacks its payload holds up everything behind it.
                if counts and payload is None and not self._is_lost(applied):
                    return
                # Counted before it is delivered: whatever the delivery causes may lead back to `advance`, and must not
                # deliver the value a second time.
                self.position += 1
                self._waiting.popleft()
                self._deliver(applied, payload)
            else:
                self._waiting.popleft()
