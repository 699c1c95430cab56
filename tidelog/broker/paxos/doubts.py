"""A log that holds what its replica has forgotten, and nobody applies again, is compared with other replicas' logs.

A replica whose journal has lost its end hides what its log holds from there on, until it is applied again. If all
other journals have given that up, it goes on at their floor, and nobody tells any more what was chosen below. Their
logs do: a batch lies in every log at the same offset, byte for byte. So the log here stays as it is, hidden, for it may
hold the last good copy of something, and is compared with the others', batch by batch (`copying`):

- what another log shows, or has a sound row of though its batch is damaged, is shown here if its digest is the same;
- where the digests differ the log here is truncated, and copied from there on;
- what an operator has given up is compared with nothing;
- of what no other log knows any more the log here is believed. Others know nothing of what they have damaged with its
  row, and of what they have yet to copy, or to compare, themselves.

The floor of the journal says from where on rows are hidden (`Floor.hidden_from`): a restart begins again there.
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
    """A batch of another log, as that one reports it."""

    next_offset: int
    digest: bytes = b""
    """The digest of the batch; empty if the other log knows no more than its end."""


def reported_by(read: AppliedRead, data: Buffer, offset: int) -> list[ReportedBatch]:
    """Returns the batches that an answer reports of another log from `offset` on; nothing if that cannot say. Raises
    `InvalidBatch`."""
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
    """Returns up to where these offsets of a log are compared with what another holds from their beginning on, and
    whether they are at odds there. Raises `Overloaded`."""
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
