"""Reading a replicated log. Mesos: `Log::Reader`, but of the leader's copy instead of a replica's own, and with ends
that are exclusive, as everywhere here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final, Self, Unpack

from tidelog.adapters.secret_file import read_secret
from tidelog.adapters.system import SystemEntropy
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
    """Reads the log in a topic's partition, as much as is committed.

    `bootstrap_servers`, `topic` and `partition` are those of the `Writer`. `timeout_ms` bounds each call; of `read` it
    bounds the wait for the next entry. `request_timeout_ms` bounds one try at one broker.

    Use it as an async context manager, or call `start` and `close`. For one event loop; reads may overlap.
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
        secure = Security(**security)
        self._partition = LogPartition(
            bootstrap_servers,
            topic,
            partition,
            request_timeout_s=request_timeout_ms / 1000,
            entropy=entropy or SystemEntropy(),
            credentials=secure.credentials(read_secret),
            security=secure,
        )
        self._timeout_s = timeout_ms / 1000

    async def start(self) -> None:
        """Connects. Raises `ConnectFailed`, `UnknownTopic` or `UnknownPartition`."""
        await self._partition.open()

    async def close(self) -> None:
        """Closes all connections at once. Idempotent."""
        await self._partition.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def beginning(self) -> int:
        """Returns the position from which on entries are kept; what is before it has been truncated. The first entry is
        there or behind it."""
        return (await self._partition.extent(self._deadline_s())).beginning

    async def ending(self) -> int:
        """Returns the position behind the last entry that is known to be committed. It may be behind what was
        acknowledged to others just now, if the leader has changed: see `catchup`."""
        return (await self._partition.extent(self._deadline_s())).ending

    async def catchup(self) -> int:
        """Returns an ending behind everything that was acknowledged, to anybody, before this call. (Mesos: `catchup`.)

        The leader's copy, when it is first asked, contains all of that; a new leader may need a moment to know it
        committed. Raises `LeaderNotAvailable`, or what the last try ended with, at the deadline.
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
        """Yields the entries with positions from `start` on, up to `to` (exclusive), in order, each once.

        `to` is an ending that somebody was told: the reader waits for entries that its leader does not know to be
        committed yet. To follow a log, read on from `to` up to the next `catchup`.

        Raises `OffsetOutOfRange` if what is at `start` has been truncated: begin anew at `beginning`; or if the log
        does not reach `to` within `timeout_ms`. `DamagedBatch` if an entry stays damaged on the leader's disk so long.
        `RecordsLost` at entries that are lost for good, which an operator has accepted: nobody knows the state that the
        log leads to without them.
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
        """Returns the batches that follow; at least one."""

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
    """Says that nothing is at a position: not yet, or not at all."""
