"""`FetchWait`: the wait of a Fetch for records.

It takes neither a task nor a timer: the partitions call back when they change, and the listener's `Waits` at the
deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tidelog.broker.face.partitions import Watchers
from tidelog.broker.kafka.listener_parts import Parts


class FetchWait:
    """The wait of one Fetch, until `leave`."""

    __slots__ = ("_has_left", "_is_called", "_look", "_parts", "_tick", "_watched", "is_over", "is_woken")

    def __init__(self, parts: Parts, watched: Sequence[Watchers], deadline_s: float, look: Callable[[], None]) -> None:
        """`look`, which must not raise, is called after changes of the watched partitions, and when the wait is over,
        at the deadline (loop time) or the listener's shutdown. Raises `Overloaded` if too many reads wait already."""
        parts.partitions.watch(watched, self._wake)
        self._watched = watched
        self._parts = parts
        self._look = look
        self.is_over = False
        self.is_woken = False
        """True if a partition has changed since the wait began."""
        self._is_called = False
        """True while `look` is about to be called after a change."""
        self._has_left = False
        self._tick = parts.admission.waits.begin(deadline_s, self._end)

    def leave(self) -> None:
        """Ends the wait: `look` is not called any more."""
        self._has_left = True
        self._parts.partitions.unwatch(self._watched, self._wake)
        self._parts.admission.waits.leave(self._tick, self._end)

    def _wake(self) -> None:
        self.is_woken = True
        # Not at once: the partition is amid its change, and may change again in this iteration of the event loop.
        if not self._is_called:
            self._is_called = True
            asyncio.get_running_loop().call_soon(self._look_after_change)

    def _look_after_change(self) -> None:
        self._is_called = False
        if not self._has_left:
            self._look()

    def _end(self) -> None:
        self.is_over = True
        self._look()
