"""Entries and marks, through a batch and back."""

from __future__ import annotations

from tidelog.log.entries import CLAIM, TRUNCATION, Entry, entries_of, entry_record, mark_record
from tidelog.model.batch_codec import encode_batch
from tidelog.model.batch_header import RecordBatch, assign_offsets, parse_header
from tidelog.model.records import Record


def placed(*records: Record, base_offset: int = 0) -> RecordBatch:
    data = encode_batch(list(records))
    return assign_offsets(RecordBatch(parse_header(data), memoryview(data)), base_offset, 3)


def test_entries_come_back_with_their_positions_and_marks_do_not() -> None:
    batch = placed(
        mark_record(1, CLAIM, "a writer"),
        entry_record(2, b"one"),
        mark_record(3, TRUNCATION, "7"),
        entry_record(4, b""),
        base_offset=40,
    )
    assert list(entries_of(batch)) == [Entry(41, b"one"), Entry(43, b"")]


def test_what_others_wrote_is_an_entry_whatever_its_headers() -> None:
    """Only a null value can be a mark: what somebody wrote is never passed over."""
    batch = placed(
        Record(1, b"key", b"value", ((CLAIM, b"no claim"),)),
        Record(2, b"key", None),
        Record(3, None, None, (("other", None),)),
    )
    assert list(entries_of(batch)) == [Entry(0, b"value"), Entry(1, b""), Entry(2, b"")]
