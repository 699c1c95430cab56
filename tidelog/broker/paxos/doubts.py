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

from collections.abc import Iterable
from typing import NamedTuple

from xxhash import xxh3_128_digest

from tidelog.broker.paxos.messages import AppliedRead
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


def compare(log: PartitionLog, doubted: range, reported: Iterable[ReportedBatch]) -> tuple[int, bool]:
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
