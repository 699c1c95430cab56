"""Between the two loops of a record stream: what has arrived and is not yet appended, in order, bounded."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Final

from tidelog.broker.http.json_body import RecordV3
from tidelog.model.errors import TidelogError
from tidelog.model.records import Record

ITEM_OVERHEAD_BYTES: Final = 256
"""The bytes that a record in the window counts for beside its JSON."""
ITEMS_MAX: Final = 2_000
"""Records appended, and receipts written, in one go."""


@dataclass(slots=True)
class Arrived:
    """A record that was read, or why it could not be; `size` is what it takes of the window."""

    size: int
    sent: RecordV3 | None = None
    record: Record | None = None
    partition: int = -1
    error: TidelogError | None = None


class Window:
    """A queue of arrived records that are not yet taken, bounded by bytes; one item always fits. It has one task that
    puts and one that takes.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._items: deque[Arrived] = deque()
        self._bytes = 0
        self._changed = asyncio.Event()
        self.is_closed = False

    async def put(self, item: Arrived) -> None:
        """Adds an item, waiting for room."""
        while self._items and self._bytes + item.size > self._bytes_max:
            self._changed.clear()
            await self._changed.wait()
        self._items.append(item)
        self._bytes += item.size
        self._changed.set()

    async def take(self) -> list[Arrived]:
        """Takes up to `ITEMS_MAX` items, and waits for the first; returns an empty list once the window is closed and
        drained.
        """
        while not self._items and not self.is_closed:
            self._changed.clear()
            await self._changed.wait()
        items = [self._items.popleft() for _ in range(min(len(self._items), ITEMS_MAX))]
        self._bytes -= sum(item.size for item in items)
        self._changed.set()
        return items

    def close(self) -> None:
        """Notes that nothing more will come."""
        self.is_closed = True
        self._changed.set()
