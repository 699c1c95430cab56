"""The leader epochs of a log and the first offset of each: by these, two logs find where they diverge (KIP-101,
KIP-279).

Batches of one leader epoch were written by one leader, in order. So two logs that hold a batch of the same epoch at the
same offset are equal up to that batch, and the first offsets of the epochs in both logs show where they diverge.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class EpochEnd(NamedTuple):
    """The end offset, in a log, of all batches of epochs up to `epoch`."""

    epoch: int
    offset: int


class Lineage:
    """The pairs (leader epoch, first offset) of a log, one for each leader epoch.

    Invariant: both strictly increase. A leader adds the row of its own epoch at its log end offset before it writes
    anything.
    """

    def __init__(self, rows: Iterable[tuple[int, int]] = ()) -> None:
        self._rows: list[tuple[int, int]] = []
        for epoch, offset in rows:
            self.begin(epoch, offset)

    @property
    def rows(self) -> tuple[tuple[int, int], ...]:
        return tuple(self._rows)

    @property
    def last_epoch(self) -> int | None:
        """Returns the newest leader epoch of the log; None if it never had one."""
        return self._rows[-1][0] if self._rows else None

    def begin(self, epoch: int, offset: int) -> None:
        """Adds the leader epoch `epoch`, which begins at `offset`. An epoch that the log has already is left as
        it is."""
        if self._rows and self._rows[-1][0] == epoch:
            return
        assert not self._rows or (self._rows[-1][0] < epoch and self._rows[-1][1] < offset), (epoch, offset, self.rows)
        self._rows.append((epoch, offset))

    def end_of(self, epoch: int, log_end_offset: int) -> EpochEnd | None:
        """Returns the end of the batches of epochs up to `epoch`, with the newest such epoch that the log has.

        Returns None if `epoch` is newer than the log's newest, since the log cannot know its end. If all epochs of the
        log are newer than `epoch`, returns `epoch` and the log's first offset: the two logs have nothing in common.
        """
        if not self._rows or epoch > self._rows[-1][0]:
            return None
        if epoch == self._rows[-1][0]:
            return EpochEnd(epoch, log_end_offset)
        # The newest epoch that is not newer, with its end (KIP-279). An answer about the asked epoch alone would leave,
        # after quick elections, batches of a branch that the other log never saw.
        floor_epoch = epoch
        for row_epoch, offset in self._rows:
            if row_epoch > epoch:
                return EpochEnd(floor_epoch, offset)
            floor_epoch = row_epoch
        raise AssertionError("a later epoch was just seen to be there")

    def truncate(self, log_end_offset: int) -> None:
        """Drops the epochs that begin at or behind the log's new end, after a truncation."""
        # An epoch that begins at the new end has no batch left: the next batch there may be of another.
        while self._rows and self._rows[-1][1] >= log_end_offset:
            self._rows.pop()

    def delete_records(self, log_start_offset: int) -> None:
        """Drops the epochs that end at or below the log's new start offset."""
        # The last row stays even if none of its batches does. A follower tells by it that the leader's log parted from
        # its own before what was deleted (`IsrFollower`).
        while len(self._rows) > 1 and self._rows[1][1] <= log_start_offset:
            del self._rows[0]

    def clear(self) -> None:
        """Drops all epochs, because the log begins anew."""
        self._rows.clear()
