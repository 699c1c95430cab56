"""What is chosen, on its way to the state machine: in order, each position once, and never without its payload.

The engine applies values by their identity alone, and may jump over positions that every peer has truncated. The state
machine behind can do neither. So whatever lacks its payload holds up those behind it until a peer's copy has come, and
a gap holds them up until a snapshot has bridged it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from tidelog.replication.paxos.events import Applied
from tidelog.replication.paxos.state import Value


class Delivery:
    """`deliver` gets each applied value with its payload, None if it has none. `position` is the next to deliver."""

    def __init__(
        self,
        position: int,
        read: Callable[[int, Value], bytes | None],
        deliver: Callable[[Applied, bytes | None], None],
    ) -> None:
        self.position = position
        self._end = position
        self._read = read
        self._deliver = deliver
        self._waiting: deque[Applied] = deque()

    @property
    def needs_snapshot(self) -> int | None:
        """Where a snapshot must reach at least, if nothing else can close the gap."""
        if self._waiting and self._waiting[0].position > self.position:
            return self._waiting[0].position
        return self._end if not self._waiting and self._end > self.position else None

    def applied(self, applied: Applied) -> None:
        """The engine's next position."""
        self._end = max(self._end, applied.position + 1)
        self._waiting.append(applied)
        self.advance()

    def jumped(self, position: int) -> None:
        """The engine goes on at `position`, without what lies before."""
        self._end = max(self._end, position)
        self.advance()

    def installed(self, position: int) -> None:
        """A snapshot stands for everything below."""
        assert position >= self.position
        self.position = position
        self._end = max(self._end, position)
        self.advance()

    def advance(self) -> None:
        """Delivers what can be delivered; to be called again when a payload has come."""
        while self._waiting and self._waiting[0].position <= self.position:
            applied = self._waiting[0]
            if applied.position == self.position:
                payload = self._read(applied.position, applied.value) if applied.value.digest else None
                if applied.value.digest and payload is None:
                    return
                self.position += 1
                self._waiting.popleft()
                self._deliver(applied, payload)
            else:
                self._waiting.popleft()
