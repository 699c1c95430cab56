"""How far a broker has applied the metadata, and the requests that wait for that.

Metadata is *in force* on a broker when its partitions have the roles that the metadata gives them. A log may still be
being opened then (decision 0045): requests that need it wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import structlog

from tidelog.broker.runtime.purgatory import Watchers
from tidelog.model.ids import PartitionId

IN_FORCE_S_MAX = 5.0
"""Seconds that an answer waits at most until this broker itself has applied the metadata it depends on."""
OPENED_S_MAX = 5.0
"""Seconds that a starting broker, and the answer to a creation of partitions, waits until these partitions are open
here. After that the opening goes on, and requests wait for it."""

logger = structlog.get_logger("tidelog.broker")


class Progress:
    """Waits for the metadata to be applied, or for logs to be opened. `changed.wake_all` has to be called at every
    change."""

    def __init__(self, position: Callable[[], int], is_opening: Callable[[PartitionId], bool]) -> None:
        """`position` returns the metadata position in force; `is_opening` whether a replica's log is being opened."""
        self.changed = Watchers()
        self._position = position
        self._is_opening = is_opening

    async def in_force(self, position: int) -> bool:
        """Returns True when this broker has applied the metadata up to `position`; False after `IN_FORCE_S_MAX`."""
        try:
            async with asyncio.timeout(IN_FORCE_S_MAX):
                while self._position() < position:
                    await self.changed.wait()
        except TimeoutError:
            logger.warning("this broker is slow to follow the metadata", position=position)
        return self._position() >= position

    async def opened(self, partitions: Iterable[PartitionId]) -> None:
        """Returns when none of these partitions' logs is being opened here any more, or after `OPENED_S_MAX`."""
        left = list(partitions)
        try:
            async with asyncio.timeout(OPENED_S_MAX):
                while left:
                    if self._is_opening(left[-1]):
                        await self.changed.wait()
                    else:
                        left.pop()
        except TimeoutError:
            logger.info("logs are still being opened; requests wait for them", partitions=len(left))
