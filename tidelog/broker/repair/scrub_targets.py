"""Targets of the scrubber: logs, journals, and facts in two copies, each read a piece at a time.

Damage is repaired at once if this disk suffices: a catalog row from its batch, one copy of facts from the other, or
both from memory, a journal's entry from the state of the replica. Other damage is left in the logs' lists of damage, or
as a faulty slot of the journal, for the parts that ask other replicas.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

import structlog

from tidelog.broker.repair.copies import Holder
from tidelog.broker.runtime.log_writer import FlushListener, LogWriter
from tidelog.broker.runtime.stats import Stats
from tidelog.model.errors import DiskFull, Overloaded
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.scrub import Scrubber
from tidelog.storage.slot_store import SlotStore
from tidelog.storage.two_copies import COPY_BYTES

PIECE_BYTES = 256 << 10
REPAIR_S_MAX = 5.0
"""Seconds of waiting for a journal entry that only another replica can give; it may still come later."""
POLL_S = 0.1

logger = structlog.get_logger("tidelog.repair")


class Progress(NamedTuple):
    """The result of one step in which the scrubber reads a target."""

    bytes_read: int
    has_finished: bool = False
    """True if the target was read to its end: the next step begins again at its start."""
    damaged: int = 0
    """Number of damaged pieces of any kind that the step found."""
    left: int = 0
    """Number of damaged pieces that the step found and that are not repaired yet."""


class Target(Protocol):
    """Something that the scrubber reads completely, again and again."""

    @property
    def is_here(self) -> bool:
        """False if this broker no longer has the target."""

    @property
    def size(self) -> int:
        """The approximate size, in bytes, of what the scrubber reads of the target."""

    async def step(self) -> Progress:
        """Reads and verifies the next piece, and repairs what this disk can. Raises `OSError`, `TidelogError`."""


class Means(NamedTuple):
    """The log writer and the counters of a broker, which scrubber targets use."""

    log_writer: LogWriter
    stats: Stats


async def read_piece(
    scrubber: Scrubber,
    log: PartitionLog,
    listener: FlushListener,
    means: Means,
    may_append: Callable[[], bool] = lambda: True,
) -> Progress:
    """Reads the next piece of a log, and makes its damaged catalog rows again. `may_append` returns False while the log
    is being truncated. Raises `OSError`, `TidelogError`."""
    piece = scrubber.begin(PIECE_BYTES)
    if piece is None:
        return Progress(0, has_finished=True)
    try:
        await means.log_writer.perform(piece.run)
    finally:
        step = scrubber.end(piece)
    if step.mend_at is not None:
        logger.warning("catalog rows are damaged", log=log.directory, rows=step.bad_rows)
        # First: `mend` would say of a damaged checkpoint that there is none, and only memory still knows what it said.
        if may_append() and log.renew_checkpoint():
            means.log_writer.submit(listener)
        await means.log_writer.exclusively(listener, partial(log.mend, step.mend_at))
        left = piece.segment.count_bad_rows(piece.slots.start, len(piece.slots))
        return Progress(step.bytes_read, damaged=step.bad_rows, left=left)
    return Progress(step.bytes_read)


class LogTarget:
    """The log of one replica as a scrubber target. Damaged batches are left to the `Repairer`."""

    def __init__(self, find: Callable[[], Holder | None], means: Means) -> None:
        self._find = find
        self._means = means

    @property
    def is_here(self) -> bool:
        return self._find() is not None

    @property
    def size(self) -> int:
        holder = self._find()
        return 0 if holder is None else holder.log.log_bytes

    async def step(self) -> Progress:
        """Reads and verifies the next piece of the log. Raises `OSError`, `TidelogError`."""
        holder = self._find()
        if holder is None:
            return Progress(0, has_finished=True)
        return await read_piece(holder.log.scrubber, holder.log, holder, self._means, lambda: holder.is_readable)


@dataclass
class CopiesTarget:
    """A small file that the disk keeps in two copies, such as metainfo, as a scrubber target. `mend` repairs bad
    copies and returns their number; it is called on the disk thread, by `perform`."""

    size = 2 * COPY_BYTES

    name: str
    mend: Callable[[], int]
    perform: Callable[[Callable[[], None]], Awaitable[None]]
    stats: Stats
    exists: Callable[[], bool] = lambda: True
    _has_finished: bool = field(init=False, default=False)

    @property
    def is_here(self) -> bool:
        return self.exists()

    async def step(self) -> Progress:
        """Reads both copies, and repairs bad ones. Raises `OSError`, `TidelogError`."""
        if self._has_finished:
            self._has_finished = False
            return Progress(0, has_finished=True)
        bad: list[int] = []
        await self.perform(lambda: bad.append(self.mend()))
        if bad[0]:
            logger.warning("copies of facts were damaged, and are mended", of=self.name, copies=bad[0])
            self.stats.damaged_batches += bad[0]
            self.stats.damaged_copies += bad[0]
            self.stats.repaired_batches += bad[0]
            self.stats.repaired_from_own_copy += bad[0]
            self.stats.repaired_own_bytes += bad[0] * COPY_BYTES
        self._has_finished = True
        return Progress(self.size, damaged=bad[0])


class JournalDisk(Protocol):
    """The disk of a Paxos replica, which writes its journal through the log writer."""

    @property
    def log(self) -> SlotStore: ...

    def on_flushed(self) -> None: ...


class JournalOwner(Protocol):
    """The Paxos engine of a replica that votes."""

    @property
    def disk(self) -> JournalDisk: ...

    def write_anew(self, position: int | None) -> None:
        """Writes a slot, or the floor (None), to the journal again, as far as it is known here; requests the rest from
        other replicas."""


class JournalTarget:
    """The journal of a replica that votes, as a scrubber target."""

    def __init__(self, name: str, owner: JournalOwner, is_here: Callable[[], bool], means: Means) -> None:
        self._name = name
        self._owner = owner
        self._is_here = is_here
        self._means = means
        self._scrubber = Scrubber(owner.disk.log.journal, owner.disk.log.journal.reader)
        self._reported_lost: set[int] = set()
        """Journal offsets of damaged entries whose catalog rows are lost as well, and that were logged already."""

    @property
    def is_here(self) -> bool:
        return self._is_here()

    @property
    def size(self) -> int:
        return self._owner.disk.log.journal.log_bytes

    async def step(self) -> Progress:
        """Reads and verifies the next piece of the journal, and repairs damaged entries. Raises `OSError`,
        `TidelogError`."""
        store = self._owner.disk.log
        progress = await read_piece(self._scrubber, store.journal, self._owner.disk, self._means)
        if not store.journal.damage or store.offline_reason is not None:
            return progress
        damaged, left = await self._heal()
        return progress._replace(damaged=progress.damaged + damaged, left=progress.left + left)

    async def _heal(self) -> tuple[int, int]:
        """Has damaged entries written again, and waits up to `REPAIR_S_MAX` for those that only other replicas have;
        returns how many entries were damaged, and how many still are."""
        store, stats = self._owner.disk.log, self._means.stats
        lost = store.take_damage()
        rowless = len(store.journal.damaged_ranges())
        if not lost:
            return rowless, await self._give_up(store)
        logger.warning("entries of a journal are damaged", journal=self._name, positions=lost)
        stats.damaged_batches += len(lost)
        stats.damaged_journal_entries += len(lost)
        for position in lost:
            self._owner.write_anew(position)
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + REPAIR_S_MAX
        left = [position for position in lost if position is not None]
        while left and self.is_here:
            await asyncio.sleep(POLL_S)
            left = [position for position in left if store.is_faulty(position)]
            if loop.time() >= give_up_s:
                break
        stats.repaired_batches += len(lost) - len(left)
        if left:
            logger.warning("a journal waits for payloads that other replicas have", journal=self._name, positions=left)
        return len(lost) + rowless, len(left) + await self._give_up(store)

    async def _give_up(self, store: SlotStore) -> int:
        """Has the journal delete segments with damaged entries whose catalog rows are lost as well, once nothing needs
        these entries. Returns the number of damaged ranges that are left after `REPAIR_S_MAX` at most."""
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + REPAIR_S_MAX
        while (ranges := store.journal.damaged_ranges()) and self.is_here and loop.time() < give_up_s:
            try:
                is_possible = store.give_up(ranges[-1].start, ranges[-1].end)
            except (DiskFull, Overloaded):
                is_possible = False
            if not is_possible:
                break
            self._means.log_writer.submit(self._owner.disk)
            await asyncio.sleep(POLL_S)
        self._tell_of_lost_rows(store)
        return len(store.journal.damaged_ranges())

    def _tell_of_lost_rows(self, store: SlotStore) -> None:
        """Logs an error, once for each damaged range of the journal that `_give_up` could not delete."""
        starts = {damage.start for damage in store.journal.damaged_ranges()}
        if starts - self._reported_lost:
            logger.error(
                "entries of a journal and their catalog rows are damaged, and needed still; if this broker is started "
                "again before that is mended, this replica has to vote under another id",
                journal=self._name,
                entries=sorted(starts),
            )
        self._reported_lost = starts


def metainfo_target(name: str, find: Callable[[], Holder | None], means: Means) -> CopiesTarget:
    """Returns the scrubber target of a replica's metainfo."""

    def mend() -> int:
        holder = find()
        return 0 if holder is None else holder.log.mend_metainfo(holder.log.metainfo(holder.high_watermark))

    async def perform(call: Callable[[], None]) -> None:
        holder = find()
        await (means.log_writer.perform(call) if holder is None else means.log_writer.exclusively(holder, call))

    return CopiesTarget(name, mend, perform, means.stats, lambda: find() is not None)


def journal_metainfo_target(name: str, owner: JournalOwner, is_here: Callable[[], bool], means: Means) -> CopiesTarget:
    """Returns the scrubber target of a voting replica's metainfo, which its journal stores."""

    async def perform(call: Callable[[], None]) -> None:
        await means.log_writer.exclusively(owner.disk, call)

    return CopiesTarget(name, owner.disk.log.mend_metainfo, perform, means.stats, is_here)
