"""A broker's disk, reduced to one partition's log, and what a crash leaves of it.

Batches hold one record each; a log is a list of (leader epoch, value), so that equal entries mean equal batches. What
the broker takes for durable (`durable`) and what the disk really holds (`kept`) differ only if the code under test
errs.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.replication.isr.events import LogState
from tidelog.sim.isr.dice import Dice

Entry = tuple[int, int]


class Disk:
    """A disk, from its first use until it is replaced. Invariant: kept <= len(log), durable <= len(log)."""

    def __init__(self, storage: str) -> None:
        self.storage = storage
        self.log: list[Entry] = []
        self.start = 0
        self.base = 0
        """Offset where the log was started over; below it the entries are fillers without content."""
        self.durable = 0
        self.kept = 0
        self.high_watermark = 0
        """High watermark in the checkpoint file."""
        self.clean_epoch = -1
        """Broker epoch in the mark of a clean stop; -1 without it."""
        self.faulty: dict[int, None] = {}
        """Offsets of batches that have rotted; their offsets and epochs stay known from the catalog, an index apart
        from the data."""
        self.torn: set[int] = set()
        """Faulty offsets whose batches a power cut took before they were durable, so that this copy was never
        acknowledged."""
        self.is_offline = False
        """True after an fsync has failed: nothing is written any more until the process restarts."""

    def state(self) -> LogState:
        return LogState(self.start, self.durable, len(self.log), lineage_of(self.log, self.base))

    def sync(self, to: int) -> None:
        """Makes the log durable up to `to`."""
        self.durable = self.kept = max(self.kept, to)

    def fail_sync(self) -> None:
        """Fails an fsync: the system drops the unsynced writes and marks them clean, so no later fsync makes them
        durable."""
        self.is_offline = True

    def repair(self, offset: int) -> None:
        """Restores the batch at an offset."""
        self.faulty.pop(offset, None)
        self.torn.discard(offset)

    def acknowledged_end(self, high_watermark: int) -> int:
        """Returns the end offset that the broker may acknowledge: the durable end, or the first damaged offset from
        `high_watermark` on if that is less. (The shipped `broker.isr.follower.acknowledged_end` does the same.)"""
        return min([self.durable, *(offset for offset in self.faulty if offset >= high_watermark)])

    def may_repair(self, offsets: Sequence[int]) -> bool:
        """Returns True if the log can repair one of these offsets for another replica, as
        `broker.isr.partition.Partition.may_repair` does."""
        return any(self.start <= at < len(self.log) and at not in self.faulty for at in offsets)

    def readable(self, at: int) -> int:
        """Returns the first damaged offset from `at` on, or the end of the log."""
        return min((offset for offset in self.faulty if offset >= at), default=len(self.log))

    def delete_records(self, to: int) -> None:
        self.start = max(self.start, to)
        self._forget_faults()

    def _forget_faults(self) -> None:
        """Forgets the damage of entries that are not in the log any more."""
        self.faulty = {offset: None for offset in self.faulty if self.start <= offset < len(self.log)}
        self.torn &= self.faulty.keys()

    def truncate(self, to: int) -> None:
        """Truncates the log, and makes the remaining entries durable."""
        del self.log[to:]
        self._forget_faults()
        self.durable = self.kept = to

    def start_over(self, at: int, filler: Sequence[Entry]) -> None:
        """Drops the whole log and starts it at another offset; `filler` stands for the entries below it, and keeps
        comparisons short."""
        self.log[:] = filler
        assert len(self.log) == at
        self.faulty.clear()
        self.torn.clear()
        self.start = self.base = self.durable = self.kept = at

    def drop(self) -> None:
        """Deletes the log, since the replica was removed from the node."""
        self.log.clear()
        self.faulty.clear()
        self.torn.clear()
        self.start = self.base = self.durable = self.kept = self.high_watermark = 0

    def lose_power(self, dice: Dice, torn: float = 0.3) -> None:
        """Drops a tail of the unsynced entries, which opening the log would truncate. Of the other unsynced entries the
        catalog rows (index entries) stay, and a share `torn` loses the batch, which looks like rot."""
        del self.log[dice.between(self.kept, len(self.log)) :]
        for offset in range(self.kept, len(self.log)):
            if dice.chance(torn):
                self.faulty[offset] = None
                self.torn.add(offset)
        self._forget_faults()

    def open(self) -> None:
        """Opens the log for a new process: makes what is there durable, and bounds the checkpointed high watermark by
        the log's end. Entries that a failed fsync has dropped are gone."""
        if self.is_offline:
            del self.log[self.kept :]
            self._forget_faults()
        self.is_offline = False
        self.durable = self.kept = len(self.log)
        self.high_watermark = min(max(self.high_watermark, self.start), len(self.log))


def lineage_of(log: Sequence[Entry], base: int = 0) -> tuple[tuple[int, int], ...]:
    """Returns (leader epoch, first offset) for each epoch in the log."""
    return tuple((log[at][0], at) for at in range(base, len(log)) if at == base or log[at - 1][0] != log[at][0])
