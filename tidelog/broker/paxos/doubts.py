"""Comparison of doubted batches with other replicas' logs, where no journal can tell any more which values were chosen.

A replica whose journal has lost its end hides the batches of its log from there on, until they are applied again. If
all other journals have truncated these values, the replica continues at their floor, and no journal tells what was
chosen below. The other logs do: a batch has the same offset and bytes in every log. So the hidden batches stay, since
they may be the last good copies, and are compared one by one (`copying`):

- a batch is shown to readers if another log has the same digest for it, even if only in the row of a damaged batch;
- where the digests differ, this log is truncated, and copied from there on;
- batches that an operator has given up are not compared;
- a batch that no other log knows any more is trusted. Another log does not know batches whose row is damaged too, and
  batches that it has yet to copy or to compare itself.

The journal's floor stores the offset from which on rows are hidden (`Floor.hidden_from`), so that a restart continues
the comparison there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from xxhash import xxh3_128_digest

from tidelog.broker.paxos.comparison import Comparison
from tidelog.broker.paxos.messages import AppliedRead
from tidelog.broker.runtime.purgatory import Watchers
from tidelog.model.batch_header import parse_header
from tidelog.model.ports import Buffer
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.received import parse_received
from tidelog.storage.rows import Row
from tidelog.storage.segment import end_of


class ReportedBatch(NamedTuple):
    """A batch of another replica's log, as that replica's answer reports it."""

    next_offset: int
    digest: bytes = b""
    """Digest of the batch; empty if the other log only knows where it ends."""


def reported_by(read: AppliedRead, data: Buffer, offset: int) -> list[ReportedBatch]:
    """Returns the batches that the answer `read` reports of another log from `offset` on; empty if that log cannot say
    anything about them. Raises `InvalidBatch`."""
    if read.damaged_to > offset:
        return [ReportedBatch(read.damaged_to, read.damaged_digest)] if read.damaged_digest else []
    if not len(data):
        return []
    begin = min(offset, parse_header(data).base_offset)
    batches = parse_received(data, begin, 0, may_skip=True)
    return [
        # A batch without records stands for offsets that are gone: it has nothing to compare.
        ReportedBatch(batch.header.next_offset, xxh3_128_digest(batch.data) if batch.header.record_count else b"")
        for batch in batches
    ]


class Doubts:
    """The doubted batches of one replica's log, and their comparison with other replicas' logs."""

    def __init__(
        self,
        log: PartitionLog,
        comparison: Comparison,
        watchers: Watchers,
        order_truncation: Callable[[int | None], bool],
        delete_below: Callable[[int], None],
    ) -> None:
        """`watchers` wait for batches to be shown. `order_truncation` has the log truncated at an offset, and returns
        True unless that is None; `delete_below` raises its log start offset."""
        self._log = log
        self._comparison = comparison
        self._watchers = watchers
        self._order_truncation = order_truncation
        self._delete_below = delete_below

    def offsets(self) -> range:
        """Returns the offsets of this log that have to be compared with other replicas' logs before readers may see
        them. Offsets that are deleted or beyond the log's end are taken as compared."""
        doubted = self._comparison.doubted
        here = range(max(doubted.start, self._log.log_start_offset), min(doubted.stop, self._log.log_end_offset))
        if doubted and here.start > doubted.start:
            self._settle(here.start)
        if doubted and not here:
            self._settle(doubted.stop)
        return here

    def _settle(self, offset: int) -> None:
        """Shows the batches below `offset` to readers, as they have been compared with other replicas' logs."""
        self._comparison.settled(offset)
        self._watchers.wake_all()

    def compare(self, reported: Iterable[ReportedBatch]) -> bool:
        """Compares the doubted batches with those of another replica's log; returns True if at least one could be
        decided, by showing it or by truncating the log."""
        doubted = self.offsets()
        offset, is_at_odds = _compare(self._log, doubted, reported)
        if offset > doubted.start:
            self._settle(offset)
        return self._order_truncation(offset if is_at_odds else None) or offset > doubted.start

    def begins_later(self, offset: int) -> bool:
        """Deletes the doubted batches below `offset`, the log start offset of another replica. Returns True if they are
        deleted or about to be."""
        start = self._log.log_start_offset
        # Nothing of the other log can be compared, and all that is here was deleted there: another log stands for it.
        if offset >= self._log.log_end_offset:
            return self._order_truncation(self.offsets().start)
        self._delete_below(offset)
        return self._log.log_start_offset > start


def _compare(log: PartitionLog, doubted: range, reported: Iterable[ReportedBatch]) -> tuple[int, bool]:
    """Compares the doubted offsets of a log (which no journal can confirm) with the batches that another log reports.
    Returns the offset up to which they are compared, and whether the logs differ there. Raises `Overloaded`."""
    offset, entries = doubted.start, log.entries(doubted.start)
    entry = next(entries, None)
    for batch in reported:
        while entry is not None and end_of(entry) <= offset:
            entry = next(entries, None)
        if entry is None or offset >= doubted.stop:
            break
        # Neither side can be compared here, so the log is believed: nobody knows better.
        if not (batch.digest and isinstance(entry, Row)):
            offset = max(offset, batch.next_offset)
        elif entry.digest == batch.digest:
            offset = entry.next_offset
        else:
            return offset, True
    # Behind it the rows are compared as the log is applied again.
    return min(offset, doubted.stop), False
