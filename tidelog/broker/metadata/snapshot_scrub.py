"""Scrubbing of the metadata snapshots: both copies of each header, and each block of each body.

A bad copy of a header is written anew from the other. Missing blocks are fetched from other brokers, which have the
same bytes at the same position, and written in place of the bad ones. A snapshot with a block that is bad on every
broker stays as it is: an older snapshot and the log suffice, and the next snapshot replaces it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import eq

import structlog
from xxhash import xxh3_128

from tidelog.broker.metadata.snapshots import Ask, SnapshotKeeper
from tidelog.broker.repair.scrub_targets import Means, Progress
from tidelog.storage.snapshot_format import BLOCK_BYTES, SnapshotHeader
from tidelog.storage.snapshots import SnapshotStore

BLOCKS = 64
"""The number of blocks that one step of the scrubber verifies."""

logger = structlog.get_logger("tidelog.repair")


class SnapshotTarget:
    """The scrubber's target (`Target`) for the snapshots of one broker. `nodes` returns the other brokers."""

    is_here = True

    def __init__(
        self, store: SnapshotStore, keeper: SnapshotKeeper, nodes: Callable[[], Sequence[int]], ask: Ask, means: Means
    ) -> None:
        self._store = store
        self._keeper = keeper
        self._nodes = nodes
        self._ask = ask
        self._means = means
        self._waiting: list[SnapshotHeader] | None = None
        """The snapshots that this round of scrubbing has still to read; None between rounds."""
        self._next = 0
        self._bad = 0
        self._hashes = xxh3_128()
        """The hashes of the blocks read so far of the present snapshot; `_next` is the next block, `_bad` the number of
        bad ones."""

    @property
    def size(self) -> int:
        """The size of the snapshots in bytes."""
        return sum(header.chunk_count * BLOCK_BYTES for header in self._store.headers())

    async def step(self) -> Progress:
        """Verifies the headers, or the next blocks, and repairs what can be repaired. Raises `OSError`,
        `TidelogError`."""
        if self._waiting is None:
            return await self._look_at_headers()
        if not self._waiting:
            self._waiting = None
            return Progress(0, has_finished=True)
        return await self._look_at_blocks(self._waiting[0])

    async def _look_at_headers(self) -> Progress:
        mended: list[tuple[int, list[int]]] = []
        await self._means.log_writer.perform(lambda: mended.append(self._store.mend_headers()))
        bad, lost = mended[0]
        stats = self._means.stats
        stats.damaged_batches += bad + 2 * len(lost)
        stats.damaged_copies += bad + 2 * len(lost)
        stats.repaired_batches += bad
        stats.repaired_from_own_copy += bad
        if bad:
            logger.warning("headers of metadata snapshots were damaged, and are mended", copies=bad)
        left = 0
        for position in lost:
            logger.warning("both headers of a metadata snapshot are damaged", position=position)
            # Without a header only the position is known: a peer's snapshot of that position will do.
            left += await self._mend(position, 2, partial(_is_at, position))
        headers: list[SnapshotHeader] = []
        await self._means.log_writer.perform(lambda: headers.extend(self._store.headers()))
        self._waiting = headers
        return Progress(2 * BLOCK_BYTES * len(headers), damaged=bad + 2 * len(lost), left=left)

    async def _look_at_blocks(self, header: SnapshotHeader) -> Progress:
        looked_at: list[tuple[list[int], bytes]] = []
        first = self._next
        await self._means.log_writer.perform(lambda: looked_at.append(self._store.look_at(header, first, BLOCKS)))
        bad, hashes = looked_at[0]
        end = min(first + BLOCKS, header.chunk_count)
        self._bad += len(bad)
        self._hashes.update(hashes)
        self._next = end
        damaged = left = 0
        if end == header.chunk_count:
            # No hashes at all: the snapshot was removed while it was read.
            damaged, left = await self._end(header, is_gone=not hashes and end > 0)
        return Progress(BLOCK_BYTES * (end - first), damaged=damaged, left=left)

    async def _end(self, header: SnapshotHeader, *, is_gone: bool) -> tuple[int, int]:
        """Ends the reading of one snapshot; returns the number of bad blocks, and of those that are still bad. If each
        block is sound, but together they do not match the root hash, all are bad."""
        # Each block may be sound, and all together another snapshot: only the root tells.
        is_whole = is_gone or self._hashes.digest() == header.root
        bad = self._bad or (0 if is_whole else header.chunk_count)
        self._next, self._bad = 0, 0
        self._hashes.reset()
        if self._waiting:
            del self._waiting[0]
        if bad:
            logger.warning("blocks of a metadata snapshot are damaged", position=header.position, blocks=bad)
            self._means.stats.damaged_batches += bad
            self._means.stats.damaged_snapshot_blocks += bad
            return bad, await self._mend(header.position, bad, partial(eq, header))
        return 0, 0

    async def _mend(self, position: int, pieces: int, would_do: Callable[[SnapshotHeader], bool]) -> int:
        """Repairs a snapshot from other brokers; returns the number of pieces that are still damaged."""
        if await self._keeper.mend(would_do, self._nodes(), self._ask):
            self._means.stats.repaired_batches += pieces
            logger.info("a metadata snapshot is repaired", position=position)
            return 0
        logger.warning("some of a metadata snapshot cannot be had from any broker now", position=position)
        return pieces


def _is_at(position: int, header: SnapshotHeader) -> bool:
    return header.position == position
