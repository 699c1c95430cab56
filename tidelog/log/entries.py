"""Entries as records, and the marks between them.

An entry is the value of a record, its position the record's offset; key and headers are empty. Marks are records with a
null value and a header that says what they are: a *claim*, with which a writer began, and a *truncation*, with which it
said that what lies before a position is not needed any more. Readers skip them. To any other consumer they are records
without key and value.

Positions rise, and have gaps: where a mark is, and where a Paxos log left something out as void.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from tidelog.model.batch_codec import decode_batch
from tidelog.model.batch_header import RecordBatch
from tidelog.model.records import Record, StoredRecord

CLAIM: Final = "tidelog.log.claim"
"""The header of the mark that begins a writer's term; the value is the writer's name, for people."""
TRUNCATION: Final = "tidelog.log.truncation"
"""The header of the mark before a truncation; the value is the position of what becomes the first entry, in digits."""
RECORD_OVERHEAD_BYTES: Final = 64
"""More than a record without headers takes beside its value."""


class Entry(NamedTuple):
    """An entry: what was appended, and its position. A record with a null value, which no writer appends, has empty
    `data`."""

    position: int
    data: bytes


def entry_record(timestamp_ms: int, data: bytes) -> Record:
    return Record(timestamp_ms, None, data)


def mark_record(timestamp_ms: int, kind: str, value: str) -> Record:
    return Record(timestamp_ms, None, None, ((kind, value.encode()),))


def entries_of(batch: RecordBatch) -> Iterator[Entry]:
    """Yields the entries of a batch, without the marks. Raises `InvalidBatch` or `TooLarge`, as `decode_batch`."""
    for record in decode_batch(batch):
        if not _is_mark(record):
            # A record with a null value and no mark is a stranger's; its position counts, so it is shown, empty.
            yield Entry(record.offset, record.value or b"")


def _is_mark(record: StoredRecord) -> bool:
    # An entry always has a value, so no data of a user can pass for a mark, whatever headers it came with.
    return record.value is None and any(name in (CLAIM, TRUNCATION) for name, _ in record.headers)
