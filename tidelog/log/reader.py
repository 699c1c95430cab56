"""Reader of a replicated log, as Mesos' `Log::Reader`, except that it reads the leader's copy, and that ends are
exclusive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final, Self, Unpack

from tidelog.log.entries import Entry, entries_of
from tidelog.log.partition import LogPartition
from tidelog.model.batch_header import RecordBatch
from tidelog.model.errors import InvalidRequest, LeaderNotAvailable, OffsetOutOfRange
from tidelog.model.ports import Entropy
from tidelog.transport.parameters import client_parameters
from tidelog.transport.security import Security, SecurityParameters

FETCH_BYTES: Final = 1 << 20
POLL_S: Final = 0.5


class Reader:
    """A reader of the committed entries of the log in a topic's partition.

    `bootstrap_servers`, `topic` and `partition` are those of the `Writer`. `timeout_ms` limits each call; for `read` it
    limits the wait for the next entry. `request_timeout_ms` limits one try at one broker.

    Use it as an async context manager, or call `start` and `close`. It belongs to one event loop; reads may overlap.
    """

    @client_parameters(bootstrap="bootstrap_servers")
    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        topic: str,
        *,
        partition: int = 0,
        timeout_ms: float = 30_000,
        request_timeout_ms: float = 5_000,
        entropy: Entropy | None = None,
        **security: Unpack[SecurityParameters],
    ) -> None:
        self._partition = LogPartition(
            bootstrap_servers,
            topic,
            partition,
            request_timeout_ms=request_timeout_ms,
            entropy=entropy,
            security=Security(**security),
        )
        self._timeout_s = timeout_ms / 1000

    async def start(self) -> None:
        """Connects to the cluster. Raises `ConnectFailed`, `UnknownTopic` or `UnknownPartition`."""
        await self._partition.open()

    async def close(self) -> None:
        """Closes all connections at once. May be called again."""
        await self._partition.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def beginning(self) -> int:
        """Returns the first position that has not been truncated. The first entry is at that position or after it."""
        return (await self._partition.extent(self._deadline_s())).beginning

    async def ending(self) -> int:
        """Returns the position after the last entry that the leader knows to be committed. After a change of leader
        this may be less than what was acknowledged to writers: see `catchup`."""
        return (await self._partition.extent(self._deadline_s())).ending

    async def catchup(self) -> int:
        """Returns a committed end after every entry acknowledged to any writer before this call (Mesos: `catchup`).

        The leader's copy contains all acknowledged entries, but a new leader may need a moment to know them committed;
        the call waits for that. Raises `LeaderNotAvailable`, or the error of the last try, at the deadline.
        """
        deadline_s = self._deadline_s()
        target: int | None = None

        async def attempt(timeout_s: float) -> int:
            nonlocal target
            extent = await self._partition.extent(min(deadline_s, asyncio.get_running_loop().time() + timeout_s))
            # What an earlier leader had beyond this one's copy was never acknowledged.
            target = extent.appended_end if target is None else min(target, extent.appended_end)
            # The leader has more than it knows to be committed. Some of that may be acknowledged, by the leader before
            # it: only its commit tells.
            if extent.ending < target:
                raise LeaderNotAvailable(
                    f"{self._partition} is committed up to {extent.ending}; entries up to {target} may be acknowledged"
                )
            return extent.ending

        return await self._partition.persist(attempt, deadline_s)

    async def read(self, start: int, to: int) -> AsyncIterator[Entry]:
        """Yields the entries with positions from `start` up to `to` (exclusive), in order, each once.

        `to` is an end returned by `ending`, `catchup` or a writer: the reader waits until the leader knows the entries
        up to it to be committed. To follow a log, continue from `to` up to the next `catchup`.

        Raises `OffsetOutOfRange` if the entries at `start` have been truncated (begin again at `beginning`), or if the
        log does not reach `to` within `timeout_ms`; `DamagedBatch` if an entry stays damaged on the leader's disk for
        that time; `RecordsLost` at entries that are lost for good, as accepted by an operator, since the state that the
        log describes is unknown without them.
        """
        if not 0 <= start <= to:
            raise InvalidRequest(f"entries from {start} to {to}: give a range, from 0 on")
        position = start
        while position < to:
            for batch in await self._next_batches(position):
                for entry in entries_of(batch):
                    # A batch comes whole: its first entries may lie before `start`, its last ones at `to` or behind.
                    if position <= entry.position < to:
                        yield entry
                # Not the last entry's position plus one: marks at the end of a batch are no entries, and the same batch
                # would be fetched for ever.
                position = batch.header.next_offset

    async def _next_batches(self, position: int) -> list[RecordBatch]:
        """Waits for batches from `position` on; returns at least one."""

        async def attempt(timeout_s: float) -> list[RecordBatch]:
            # Half of the time at most, so that the leader's "nothing yet" arrives before this try is given up.
            wait_s = min(POLL_S, timeout_s / 2)
            try:
                batches = await self._partition.fetch(position, timeout_s, bytes_max=FETCH_BYTES, wait_s=wait_s)
            except OffsetOutOfRange as error:
                # Truncated: that does not pass. Beyond the end, it may: the ending may come from an earlier leader.
                if position < error.log_start_offset:
                    raise
                raise _NotThere(error.message) from error  # a new leader may not know that it is committed
            following = [batch for batch in batches if batch.header.next_offset > position]
            if not following:
                raise _NotThere(f"{self._partition} has nothing behind position {position}")
            return following

        try:
            return await self._partition.persist(attempt, self._deadline_s())
        except _NotThere as error:
            extent = await self._partition.extent(self._deadline_s())
            raise OffsetOutOfRange(error.message, extent.beginning, extent.ending) from error

    def _deadline_s(self) -> float:
        return asyncio.get_running_loop().time() + self._timeout_s


class _NotThere(LeaderNotAvailable):
    """No committed entry is at a position, at least not yet."""
