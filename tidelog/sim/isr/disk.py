"""A broker's disk, as far as one partition's log is on it, and what a crash leaves of it.

Batches hold one record each; a log is a list of (leader epoch, value), so that equal entries mean equal batches. What
the broker takes for durable (`durable`) and what the platters hold (`kept`) differ only if somebody errs.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.replication.isr.events import LogState
from tidelog.sim.isr.dice import Dice

Entry = tuple[int, int]


class Disk:
    """A disk, from its first use until it is lost. Invariant: kept <= len(log), durable <= len(log)."""

    def __init__(self, storage: str) -> None:
        self.storage = storage
        self.log: list[Entry] = []
        self.start = 0
        self.base = 0
        """The offset where the log started over; below, it holds nothing, and what stands in its place is no content.
        """
        self.durable = 0
        self.kept = 0
        self.high_watermark = 0
        """The checkpoint of the high watermark."""
        self.clean_epoch = -1
        """The clean mark."""
        self.faulty: dict[int, None] = {}
        """Offsets of batches that have rotted. Which they were is known: the catalog is kept apart from the data."""
        self.torn: set[int] = set()
        """A power cut took these of them before they were durable: nobody has acknowledged this copy."""
        self.is_offline = False
        """An fsync has failed: nothing is written any more in this life."""

    def state(self) -> LogState:
        return LogState(self.start, self.durable, len(self.log), lineage_of(self.log, self.base))

    def sync(self, to: int) -> None:
        """The log is durable up to here."""
        self.durable = self.kept = max(self.kept, to)

    def fail_sync(self) -> None:
        """The system has dropped what it was to write, and calls it clean: it will never say so again."""
        self.is_offline = True

    def repair(self, offset: int) -> None:
        """A copy is put back."""
        self.faulty.pop(offset, None)
        self.torn.discard(offset)

    def acknowledged_end(self, high_watermark: int) -> int:
        """Does as `broker.isr.follower.acknowledged_end`."""
        return min([self.durable, *(offset for offset in self.faulty if offset >= high_watermark)])

    def may_repair(self, offsets: Sequence[int]) -> bool:
        """Does as `broker.isr.partition.Partition.may_repair`."""
        return any(self.start <= at < len(self.log) and at not in self.faulty for at in offsets)

    def readable(self, at: int) -> int:
        """How far the batches from there on are whole."""
        return min((offset for offset in self.faulty if offset >= at), default=len(self.log))

    def delete_records(self, to: int) -> None:
        self.start = max(self.start, to)
        self._forget_faults()

    def _forget_faults(self) -> None:
        """Forgets the faults of entries that are not there any more."""
        self.faulty = {offset: None for offset in self.faulty if self.start <= offset < len(self.log)}
        self.torn &= self.faulty.keys()

    def truncate(self, to: int) -> None:
        """Durably, with what is left."""
        del self.log[to:]
        self._forget_faults()
        self.durable = self.kept = to

    def start_over(self, at: int, filler: Sequence[Entry]) -> None:
        """Drops all; `filler` stands for what is below the new start, and keeps comparisons short."""
        self.log[:] = filler
        assert len(self.log) == at
        self.faulty.clear()
        self.torn.clear()
        self.start = self.base = self.durable = self.kept = at

    def drop(self) -> None:
        """The replica was taken away: its log is deleted."""
        self.log.clear()
        self.faulty.clear()
        self.torn.clear()
        self.start = self.base = self.durable = self.kept = self.high_watermark = 0

    def lose_power(self, dice: Dice, torn: float = 0.3) -> None:
        """Drops a tail of what was not synced, torn anywhere, which opening the log truncates. The rest has its rows;
        `torn` of it has lost its batch, which looks no different from one that has rotted."""
        del self.log[dice.between(self.kept, len(self.log)) :]
        for offset in range(self.kept, len(self.log)):
            if dice.chance(torn):
                self.faulty[offset] = None
                self.torn.add(offset)
        self._forget_faults()

    def open(self) -> None:
        """A process begins: what is there, it makes durable, and it believes no mark beyond it. Of what a failed fsync
        has dropped nothing is there."""
        if self.is_offline:
            del self.log[self.kept :]
            self._forget_faults()
        self.is_offline = False
        self.durable = self.kept = len(self.log)
        self.high_watermark = min(max(self.high_watermark, self.start), len(self.log))


def lineage_of(log: Sequence[Entry], base: int = 0) -> tuple[tuple[int, int], ...]:
    """(leader epoch, first offset), for each epoch."""
    return tuple((log[at][0], at) for at in range(base, len(log)) if at == base or log[at - 1][0] != log[at][0])
