"""Log entries as Kafka records, and the marker records between them.

An entry is the value of a record, its position the record's offset; key and headers are empty. Markers are records with
a null value and a header: a *claim* begins a writer's term, and a *truncation* says that all entries before a position
may be deleted. Readers skip markers; other consumers see them as records without key and value.

Positions rise, with gaps: where a marker is, and where a Paxos log has void offsets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from tidelog.model.batch_codec import decode_batch
from tidelog.model.batch_header import RecordBatch
from tidelog.model.records import Record, StoredRecord

CLAIM: Final = "tidelog.log.claim"
"""Header of the marker that begins a writer's term. Its value is the writer's name, for information."""
TRUNCATION: Final = "tidelog.log.truncation"
"""Header of the marker before a truncation. Its value is the decimal position of the new first entry."""
RECORD_OVERHEAD_BYTES: Final = 64
"""Upper bound of the bytes that a record without headers takes beyond its value."""


class Entry(NamedTuple):
    """An entry and its position. A record with a null value that is not a marker, which no writer appends, has empty
    `data`."""

    position: int
    data: bytes


def entry_record(timestamp_ms: int, data: bytes) -> Record:
    return Record(timestamp_ms, None, data)


def mark_record(timestamp_ms: int, kind: str, value: str) -> Record:
    return Record(timestamp_ms, None, None, ((kind, value.encode()),))


def entries_of(batch: RecordBatch) -> Iterator[Entry]:
    """Yields the entries of a batch, without markers. Raises `InvalidBatch` or `TooLarge`."""
    for record in decode_batch(batch):
        if not _is_mark(record):
            # A record with a null value and no mark is a stranger's; its position counts, so it is shown, empty.
            yield Entry(record.offset, record.value or b"")


def _is_mark(record: StoredRecord) -> bool:
    # An entry always has a value, so no data of a user can pass for a mark, whatever headers it came with.
    return record.value is None and any(name in (CLAIM, TRUNCATION) for name, _ in record.headers)
