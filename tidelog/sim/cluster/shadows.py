"""The true content of each replica's log, batch by batch (`Shadow`), kept while the process that wrote it is down.

A shadow follows its log: appends, truncations, and what was there when the log was opened. While no process has the log
open, it stays as it was when its process ended.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from tidelog.model.batch_header import RecordBatch, iter_batches
from tidelog.model.errors import TidelogError
from tidelog.model.ids import PartitionId
from tidelog.storage.partition_log import PartitionLog

READ_BYTES = 1 << 20


class Held(NamedTuple):
    """A batch in a log: offsets, leader epoch and digest of its bytes."""

    base: int
    end: int
    """End offset, exclusive."""
    epoch: int
    digest: int


def held(batch: RecordBatch) -> Held:
    header = batch.header
    return Held(header.base_offset, header.next_offset, header.leader_epoch, xxh3_64_intdigest(batch.data))


class Shadow:
    """True content of one replica's log. Its first `agreed` batches were already found equal to the committed ones."""

    def __init__(self, node: int, partition_id: PartitionId) -> None:
        self.node = node
        self.partition_id = partition_id
        self.log: PartitionLog | None = None
        self.batches: dict[int, Held] = {}
        """The batches by base offset, in order."""
        self.agreed = 0
        self.is_rotten = False
        """True if the copy was damaged on its disk; batches that cannot be read then still count as before."""
        self._start = self._durable = 0
        self._damaged: set[tuple[int, int | None]] = set()

    @property
    def start(self) -> int:
        return self._start if self.log is None else self.log.log_start_offset

    @property
    def end(self) -> int:
        return self.log.log_end_offset if self.log is not None else max(self._start, self._last_end())

    def _last_end(self) -> int:
        return next((batch.end for batch in reversed(self.batches.values())), 0)

    @property
    def has_damage(self) -> bool:
        return self.log is not None and bool(self.log.damage)

    @property
    def damaged(self) -> set[tuple[int, int | None]]:
        """Base offset and leader epoch of each batch that is damaged here while its catalog row (index entry) is
        intact."""
        if self.log is None:
            return self._damaged
        return {(damage.start, damage.epoch) for damage in self.log.damage.ranges() if damage.epoch is not None}

    def has_lost(self, batch: Held) -> bool:
        """Returns True if the disk was damaged, and the open log says of this batch's offsets only that they are
        damaged, with a catalog row (index entry) for the batch or without one. The log has nothing else at these
        offsets."""
        if self.log is None or not self.is_rotten:
            return False
        is_damaged = any(
            damage.start <= batch.base and batch.end <= damage.end
            if damage.epoch is None
            else (damage.start, damage.end, damage.epoch) == batch[:3]
            for damage in self.log.damage.ranges()
        )
        return is_damaged and not any(batch.base < held.end and held.base < batch.end for held in self.batches.values())

    @property
    def durable(self) -> int:
        return self._durable if self.log is None else self.log.durable_offset

    @property
    def last(self) -> Held | None:
        """Last batch in the log that is intact."""
        return next(reversed(self.batches.values()), None)

    def acknowledged(self, *, is_volatile: bool) -> int:
        """Returns the end offset of the records that this replica has promised to keep: all in its log if `is_volatile`
        (`ack.durability=replicated`), else only the durable ones."""
        return self.end if is_volatile else self.durable

    # -- what happens to the log -------------------------------------------------------------------------------------

    def opened(self, log: PartitionLog) -> None:
        """Notes that a process has opened the log, and reads what the log holds now. Damaged batches are left out, or,
        if the copy was damaged by a fault, kept as they were known."""
        self.log, self.agreed = log, 0
        kept = self.batches if self.is_rotten else {}
        batches = {base: batch for base, batch in kept.items() if batch.end <= log.log_end_offset}
        batches |= {batch.base: batch for batch in read_batches(log, skips_damage=True)}
        self.batches = dict(sorted(batches.items()))

    def appended(self, batches: Iterable[Held]) -> None:
        self.batches.update((batch.base, batch) for batch in batches)

    def repaired(self, batches: Iterable[Held]) -> None:
        """Notes that batches were restored where the log was damaged."""
        self.appended(batches)
        self.batches = dict(sorted(self.batches.items()))
        self.agreed = 0

    def truncated(self) -> list[Held]:
        """Notes that the log was made shorter; returns the dropped batches."""
        assert self.log is not None
        end = self.log.log_end_offset
        dropped = [batch for batch in self.batches.values() if batch.end > end]
        for batch in dropped:
            del self.batches[batch.base]
        self.agreed = 0
        return dropped

    def closed(self, *, is_power_cut: bool) -> None:
        """Notes that the process has ended; after a power cut only durable batches stay."""
        if self.log is None:
            return
        self._start, self._durable, self._damaged = self.log.log_start_offset, self.log.durable_offset, self.damaged
        self.log = None
        if is_power_cut:
            self.batches = {base: batch for base, batch in self.batches.items() if batch.end <= self._durable}
            self.agreed = 0

    def wiped(self) -> None:
        """Notes that the disk was replaced or its directory lost."""
        self.log, self.batches, self.agreed = None, {}, 0
        self._start, self._durable, self._damaged = 0, 0, set()


def read_batches(log: PartitionLog, *, skips_damage: bool = False, torn: Container[int] = ()) -> list[Held]:
    """Returns the batches that a log shows, up to the first damage, or to the end without the damaged ones if
    `skips_damage`. Given-up offsets, and `torn` offsets that are damaged, are skipped."""
    batches: list[Held] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            extent = log.read_passing(offset, READ_BYTES, log.log_end_offset).extent
        except TidelogError:
            if not skips_damage and offset not in torn:
                break
            offset += 1
            continue
        batches += [held(batch) for batch in iter_batches(extent.data)]
        offset = extent.next_offset
    return batches


def ends_at(log: PartitionLog, torn: Container[int] = ()) -> int:
    """Returns the end offset of what can be read without a gap, except for `torn` offsets and those whose loss was
    accepted."""
    batches = read_batches(log, torn=torn)
    end = log.damage.lost.past(batches[-1].end if batches else log.log_start_offset)
    while end in torn:
        end = log.damage.lost.past(end + 1)
    return end
