"""Durable before visible: numbers a node's writes, and holds back effects that other nodes may see until the writes
before them are on disk.

The state machine decides with what it has in memory, which is always the newest; a message that carries a promise waits
here until everything written before it is durable. So a crash can forget anything except what another node was told.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from tidelog.replication.paxos.events import Persist
from tidelog.replication.paxos.state import Record

E = TypeVar("E")


class Journal(Generic[E]):
    """The numbered writes of one node. `E` is the type of the effects that wait for them; effects are released in the
    order in which they came."""

    def __init__(self) -> None:
        self._sequence = 0
        self._urgent = 0
        """The sequence of the last urgent write. Effects never wait for a later write."""
        self._stored = 0
        self._waiting: deque[tuple[int, E]] = deque()

    def persist(self, *records: Record, is_urgent: bool = True, is_soon: bool = False) -> Persist:
        """Returns the next write in order. A write without records asks that all before it become durable."""
        self._sequence += 1
        if is_urgent:
            self._urgent = self._sequence
        return Persist(self._sequence, records, is_urgent, is_soon)

    @property
    def is_settled(self) -> bool:
        """Returns True if every write so far is durable."""
        return self._stored == self._sequence

    def is_durable(self, persist: Persist) -> bool:
        return self._stored >= persist.sequence

    @property
    def is_lazy(self) -> bool:
        """True if a write after the last urgent one is not durable yet."""
        return self._sequence > max(self._urgent, self._stored)

    def when_durable(self, effect: E) -> list[E]:
        """Returns the effect if all urgent writes so far are durable; else returns nothing now, and `stored` returns it
        later."""
        # Not all writes: those that are not urgent are learned slots and lazy accepts, for which no answer waits.
        # Writes become durable in order, so an urgent one covers all before it.
        if self._stored >= self._urgent:
            return [effect]
        self._waiting.append((self._urgent, effect))
        return []

    def stored(self, sequence: int) -> list[E]:
        """Records that the writes up to `sequence` are durable; returns the effects that waited for them."""
        assert sequence <= self._sequence, "the disk reports what was asked of it"
        self._stored = max(self._stored, sequence)
        released = []
        # Each effect waits for the urgent writes before it, so the sequences in the queue only rise.
        while self._waiting and self._waiting[0][0] <= self._stored:
            released.append(self._waiting.popleft()[1])
        return released

    def drop(self) -> None:
        """Drops the effects that wait for a write to be durable, because the disk has failed."""
        self._waiting.clear()
