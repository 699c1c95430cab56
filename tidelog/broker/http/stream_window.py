"""The window between the two loops of a record stream: records that have arrived and are not appended yet, in order,
bounded.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Final

from tidelog.broker.http.json_body import RecordV3
from tidelog.model.errors import TidelogError
from tidelog.model.records import Record

ITEM_OVERHEAD_BYTES: Final = 256
"""Bytes that a record counts towards the window's bound besides its JSON."""
ITEMS_MAX: Final = 2_000
"""Maximum number of records appended, and of receipts written, at a time."""


@dataclass(slots=True)
class Arrived:
    """A record that was decoded, or the error why it could not be; `size` is its share of the window in bytes."""

    size: int
    sent: RecordV3 | None = None
    record: Record | None = None
    partition: int = -1
    error: TidelogError | None = None


class Window:
    """A queue of arrived records, bounded by bytes; one item always fits. One task puts and one takes."""

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
        """Marks that no more items will come."""
        self.is_closed = True
        self._changed.set()
