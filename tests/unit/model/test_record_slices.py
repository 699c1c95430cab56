"""Opening a batch some records at a time gives the same records as opening it whole, and no part is too much work."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.model import record_slices as module
from tidelog.model.batch_codec import decode_batch, encode_batch
from tidelog.model.batch_header import HEADER_BYTES, BatchHeader, RecordBatch, parse_header
from tidelog.model.errors import InvalidBatch
from tidelog.model.record_slices import LongRecordError, record_slices
from tidelog.model.records import Record, StoredRecord
from tidelog.model.steps import SLICE_BYTES, SLICE_RECORDS

LONG = 8 << 20


def batch_of(*values: bytes, base_offset: int = 100) -> RecordBatch:
    data = encode_batch([Record(1_000 + i, None, value) for i, value in enumerate(values)], base_offset=base_offset)
    return RecordBatch(parse_header(data), memoryview(data))


def parts_of(batch: RecordBatch, start_offset: int = 0, longest: int = LONG) -> list[list[StoredRecord]]:
    return list(
        record_slices(batch.data[HEADER_BYTES:], batch.header, record_bytes_max=longest, start_offset=start_offset)
    )


@given(
    st.lists(st.sampled_from([0, 1, 60, 64, 200, 9_000, SLICE_BYTES - 12, SLICE_BYTES]), min_size=1, max_size=40),
    st.integers(99, 145),
)
def test_parts_are_the_whole(sizes: list[int], start: int) -> None:
    batch = batch_of(*(bytes(size) for size in sizes))
    found = [record for part in parts_of(batch, start) for record in part]
    assert found == [record for record in decode_batch(batch) if record.offset >= start]


def test_no_part_has_more_than_a_slice() -> None:
    many = parts_of(batch_of(*[b"x"] * 4_500))
    assert [len(part) for part in many] == [SLICE_RECORDS] * 4 + [500]
    wide = parts_of(batch_of(*[bytes(SLICE_BYTES // 3)] * 7))
    assert [len(part) for part in wide] == [2, 2, 2, 1]


def test_a_record_that_is_too_long_is_named_or_passed() -> None:
    batch = batch_of(b"a", bytes(LONG), b"b")
    with pytest.raises(LongRecordError) as error:
        parts_of(batch)
    assert error.value.offset == 101
    assert [record.value for part in parts_of(batch, 102) for record in part] == [b"b"]
    assert len(parts_of(batch, longest=LONG + 100)) == 3


def _changed(header: BatchHeader, **fields: int) -> BatchHeader:
    return header._replace(**fields)


@pytest.mark.parametrize("count", [1, 3])
def test_a_header_that_lies_about_the_number_of_records(count: int) -> None:
    batch = batch_of(b"a", b"b")
    with pytest.raises(InvalidBatch):
        parts_of(RecordBatch(_changed(batch.header, record_count=count), batch.data))


def test_a_length_that_goes_beyond_the_batch() -> None:
    batch = batch_of(b"a" * 100)
    data = bytearray(batch.data)
    data[HEADER_BYTES : HEADER_BYTES + 2] = b"\xfe\x7f"
    with pytest.raises(InvalidBatch, match="ends within a record"):
        parts_of(RecordBatch(batch.header, memoryview(data)))
    data[HEADER_BYTES] = 1
    with pytest.raises(InvalidBatch, match="negative"):
        parts_of(RecordBatch(batch.header, memoryview(data)))


def test_offsets_rise_across_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = batch_of(b"a"), batch_of(b"b")
    twice = first.data[HEADER_BYTES:].tobytes() + second.data[HEADER_BYTES:].tobytes()
    header = _changed(first.header, record_count=2, last_offset_delta=1)
    monkeypatch.setattr(module, "SLICE_RECORDS", 1)
    with pytest.raises(InvalidBatch, match="not after the one before"):
        list(record_slices(memoryview(twice), header, record_bytes_max=LONG))
