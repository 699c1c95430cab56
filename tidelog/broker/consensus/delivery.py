"""Brings what is chosen to the state machine: in order, each position once, and never without its payload, unless that
is lost for all.

The engine applies values by their identity alone, and may jump over positions that every peer has truncated. The state
machine behind can do neither. So whatever lacks its payload holds up those behind it until a peer's copy has come, and
a gap holds them up until a snapshot has bridged it.

Whether a payload is lost, so that the state machine has to go on without it, is its owner's to decide (`is_lost`). One
that is a log of records can; one whose next state depends on every entry never does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from tidelog.model.ports import Buffer
from tidelog.replication.paxos.apply import Verdict
from tidelog.replication.paxos.events import Applied
from tidelog.replication.paxos.state import Value


def _never(_: Applied) -> bool:
    return False


class Delivery:
    """`deliver` gets each value with its payload, None if it needs none, or if it is lost. `position` is the next to
    deliver; `floor` tells where the log begins; `is_lost` is asked about a value that is next, without payload."""

    def __init__(
        self,
        position: int,
        read: Callable[[int, Value], Buffer | None],
        deliver: Callable[[Applied, Buffer | None], None],
        floor: Callable[[], int],
        is_lost: Callable[[Applied], bool] = _never,
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
        """The position that a snapshot must reach at least, if nothing else can close the gap."""
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
        """The value that is next, and has not been delivered: its payload is lacking, or cannot be taken now."""
        following = self._waiting[0] if self._waiting else None
        return following if following is not None and following.position == self.position else None

    @property
    def is_held_up(self) -> bool:
        """True while something chosen waits for its payload, or for a snapshot."""
        return self.blocking is not None or self.needs_snapshot is not None

    def applied(self, applied: Applied) -> None:
        """Takes the engine's next position, and delivers what can be delivered."""
        self._end = max(self._end, applied.position + 1)
        self._waiting.append(applied)
        self.advance()

    def jumped(self, position: int) -> None:
        """Notes that the engine goes on at `position`, without the values before."""
        self._end = max(self._end, position)
        self.advance()

    def installed(self, position: int) -> None:
        """Goes on from a snapshot of everything below `position`."""
        assert position >= self.position
        self.position = position
        self._end = max(self._end, position)
        self.advance()

    def advance(self) -> None:
        """Delivers all values that are next and have their payload. Called again when a payload has come."""
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
