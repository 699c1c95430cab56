"""The leader epochs of a log, and where each begins: by these, two logs find where they diverge (KIP-101, KIP-279).

Batches of one epoch were written by one leader, one behind the other. So two logs that hold a batch of the same epoch
at the same offset are equal up to it, and to know where each epoch begins in either log is to know where they part.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class EpochEnd(NamedTuple):
    """In a log, everything of epochs up to `epoch` ends at `offset`."""

    epoch: int
    offset: int


class Lineage:
    """(leader epoch, first offset) for each epoch of a log.

    Invariant: both strictly increase. A leader's own epoch begins where its log ended when it took office: that row
    stands there before anything is written.
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
        """Notes that `epoch` begins at `offset`. An epoch that has begun already is left as it is."""
        if self._rows and self._rows[-1][0] == epoch:
            return
        assert not self._rows or (self._rows[-1][0] < epoch and self._rows[-1][1] < offset), (epoch, offset, self.rows)
        self._rows.append((epoch, offset))

    def end_of(self, epoch: int, log_end_offset: int) -> EpochEnd | None:
        """Returns the end of the batches of epochs up to `epoch`, with the newest such epoch that the log knows.

        None if `epoch` is newer than the log's newest: the log cannot know. If the log knows no epoch as old, the
        answer is the asked epoch and the start of the oldest: nothing is in common.
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
        """Drops the epochs that begin at or behind the log's new end."""
        # An epoch that begins at the new end has no batch left: the next batch there may be of another.
        while self._rows and self._rows[-1][1] >= log_end_offset:
            self._rows.pop()

    def delete_records(self, log_start_offset: int) -> None:
        """Drops the epochs that end at or below the log's new start."""
        # The last row stays even if none of its batches does. A follower tells by it that the leader's log parted from
        # its own before what was deleted (`IsrFollower`).
        while len(self._rows) > 1 and self._rows[1][1] <= log_start_offset:
            del self._rows[0]

    def clear(self) -> None:
        """Drops all epochs: the log begins anew."""
        self._rows.clear()
