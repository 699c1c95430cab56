"""How far a broker has come with what was decided for its cluster, and who waits for that.

A decision is *in force* on a broker when its partitions have the roles that the metadata gives them. A log may still be
on its way open then (decision 0045): whoever needs it waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import structlog

from tidelog.broker.runtime.purgatory import Watchers
from tidelog.model.ids import PartitionId

IN_FORCE_S_MAX = 5.0
"""How long an answer waits until this broker itself is in line with what was decided."""
OPENED_S_MAX = 5.0
"""So long a broker that starts, and the answer to who creates partitions, waits until they serve here. What takes
longer goes on, and requests wait for it."""

logger = structlog.get_logger("tidelog.broker")


class Progress:
    """Wakes those who wait whenever `changed.wake_all` says that something is different."""

    def __init__(self, position: Callable[[], int], is_opening: Callable[[PartitionId], bool]) -> None:
        """`position` is that of the metadata in force; `is_opening` tells of a replica whether its log is on its way
        open."""
        self.changed = Watchers()
        self._position = position
        self._is_opening = is_opening

    async def in_force(self, position: int) -> bool:
        """Returns when this broker is in line with the metadata up to `position`, or after a while: False then."""
        try:
            async with asyncio.timeout(IN_FORCE_S_MAX):
                while self._position() < position:
                    await self.changed.wait()
        except TimeoutError:
            logger.warning("this broker is slow to follow the metadata", position=position)
        return self._position() >= position

    async def opened(self, partitions: Iterable[PartitionId]) -> None:
        """Returns when no log of these is on its way open here any more, or after a while."""
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
