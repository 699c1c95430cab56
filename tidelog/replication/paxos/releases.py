"""Releases: which values of a coordinator may be acknowledged and read before everything below them is chosen
(`commit.order=key` or `none`; ParallelRaft, corrected).

Two values *conflict* if they have a key in common, a hash that stands for a record's key or for an idempotent producer;
`EVERY_KEY` is common to all. A value waits for the values with which it conflicts:

    A value is released when it is chosen, and every value is released that it conflicts with and that came before it.

A released value is never void, whoever leads next. Everything that it waited for was chosen before, and so on down: all
of these values stay where they are, with their birth, and so stay in force. And it was chosen under the number of its
own coordinator, so it stands below the barrier of every later one. (A value that a later coordinator has adopted is
chosen, too, but may stand above the barrier of one in between, and then it is void.) Published ParallelRaft runs values
out of order without that argument, and its replicas can differ (the ghosts of Gu et al.). A value that is not released
may turn out void, and its producer is told that nothing was appended: so an idempotent producer never has its third
batch in the log without its second.

The value names what it waits for (`predecessors.py`). If that is too much to be named, it requires the log unbroken
from the first value on that is not released, and waits for all of them.

Hashes may collide, by accident or by intent. That costs order its freedom, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tidelog.replication.paxos.predecessors import can_name, name

EVERY_KEY: Final = -1
"""The key of a value that conflicts with every other; no hash is negative."""


@dataclass(slots=True)
class _Waiting:
    """A value that is not released."""

    keys: frozenset[int]
    is_lazy: bool
    waits_for: set[int]
    is_chosen: bool = False
    successors: list[int] = field(default_factory=list)
    """The positions that wait for this one."""


class Releases:
    """The values of one coordinator, by position, from their proposal to their release. Positions rise."""

    def __init__(self) -> None:
        self._waiting: dict[int, _Waiting] = {}
        self._newest: dict[int, int] = {}
        """The last position with each key, among those that are not released."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, position: int, keys: frozenset[int], *, is_lazy: bool = False) -> int:
        """Adds a proposed value; returns its `Value.begin`. A lazy value (accepted in memory) names no others, and is
        named by none, since it can be lost although it was chosen."""
        waits_for = self._conflicts(keys)
        named = self._to_be_named(waits_for)
        if is_lazy:
            begin = 0
        elif can_name(position, named):
            begin = name(position, named)
        else:
            waits_for = set(self._waiting)
            begin = self._unbroken_from(position)
        self._waiting[position] = _Waiting(keys, is_lazy, waits_for)
        for earlier in sorted(waits_for):
            self._waiting[earlier].successors.append(position)
        self._newest.update(dict.fromkeys(sorted(keys), position))
        return begin

    def _conflicts(self, keys: frozenset[int]) -> set[int]:
        if EVERY_KEY in keys:
            return set(self._waiting)
        # The last value with a key waits for the one before it, so it stands for them all.
        return {self._newest[key] for key in sorted({*keys, EVERY_KEY}) if key in self._newest}

    def _to_be_named(self, waits_for: set[int]) -> list[int]:
        """Returns the positions that a value has to name, so that it is void if one of those that it waits for is."""
        durable = {waiting for waiting in waits_for if not self._waiting[waiting].is_lazy}
        # What one of them names itself takes that one along, if it lapses.
        implied = {earlier for later in durable for earlier in self._waiting[later].waits_for}
        return sorted(durable - implied)

    def _unbroken_from(self, position: int) -> int:
        """Returns the first position from which on the log has to be unbroken for a value that waits for all."""
        lazy = [waiting for waiting, value in self._waiting.items() if value.is_lazy]
        begin = max(lazy) + 1 if lazy else min(self._waiting)
        return begin if begin < position else 0

    def chosen(self, position: int) -> list[int]:
        """Notes that the value at a position is chosen; returns the positions that this releases, in an order in which
        each stands behind what it waited for."""
        value = self._waiting.get(position)
        if value is None:
            return []
        value.is_chosen = True
        released: list[int] = []
        ready = [] if value.waits_for else [position]
        while ready:
            released.append(ready.pop())
            ready += self._release(released[-1])
        return released

    def _release(self, position: int) -> list[int]:
        """Removes a value; returns the positions of chosen values that waited for it last."""
        value = self._waiting.pop(position)
        for key in value.keys:
            if self._newest.get(key) == position:
                del self._newest[key]
        ready = []
        for successor in value.successors:
            follower = self._waiting[successor]
            follower.waits_for.discard(position)
            if follower.is_chosen and not follower.waits_for:
                ready.append(successor)
        return ready
