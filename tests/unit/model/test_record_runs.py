"""Runs of plain records end where they should, and whatever lies in them is read as it is one by one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import tidelog.model.record_decoder
from tidelog.model.batch_codec import decode_columns, encode_batch
from tidelog.model.batch_header import HEADER_BYTES, RecordBatch, parse_header
from tidelog.model.errors import InvalidBatch
from tidelog.model.record_decoder import Columns
from tidelog.model.record_runs import decode_run
from tidelog.model.records import RecordLike

NOW = 1_700_000_000_000
PLAIN = (NOW, None, b"v")


def run_of(data: bytes, count: int, delta: int = 0) -> tuple[int, list[bytes | None], list[bytes | None], list[int]]:
    """Returns how many records the first run has, and their keys, values and times."""
    times: list[int] = []
    keys: list[bytes | None] = [None] * count
    values: list[bytes | None] = []
    _, after = decode_run(data, 0, delta, count, NOW, times, keys, values)
    assert len(times) == len(values) == after - delta
    return len(values), keys, values, times


def records_of(*records: RecordLike) -> bytes:
    return bytes(encode_batch(records)[HEADER_BYTES:])


def decoded(batch: RecordBatch, run_records_min: int) -> Columns | None:
    """Returns the columns; None if they are refused."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tidelog.model.record_decoder, "RUN_RECORDS_MIN", run_records_min)
        try:
            return decode_columns(batch)
        except InvalidBatch:
            return None


def test_a_run_has_keys_values_and_times() -> None:
    records = [(NOW, b"k", b"v"), (NOW, None, b""), (NOW + 5, b"", b"w" * 50), (NOW, b"k" * 50, b"x")]
    assert run_of(records_of(*records), 4) == (
        4,
        [key for _, key, _ in records],
        [value for _, _, value in records],
        [time for time, _, _ in records],
    )


def test_a_run_has_no_more_records_than_asked_for() -> None:
    assert run_of(records_of(PLAIN, PLAIN, PLAIN), 2)[0] == 2


@pytest.mark.parametrize("size", [70, 8000], ids=["two bytes", "two bytes, the longest"])
def test_lengths_of_two_bytes_are_a_run(size: int) -> None:
    records = [(NOW + 100, b"k", b"x" * size), (NOW + 8000, None, b"y" * size)]
    assert run_of(records_of(PLAIN, *records)[len(records_of(PLAIN)) :], 2, 1)[1:] == (
        [b"k", None],
        [b"x" * size, b"y" * size],
        [NOW + 100, NOW + 8000],
    )


@pytest.mark.parametrize(
    "record",
    [
        (NOW, None, None),
        (NOW, None, b"v", [("h", b"")]),
        (NOW - 1, None, b"v"),
        (NOW + 64, None, b"v"),
        (NOW, None, b"x" * 64),
        (NOW, b"k" * 64, b"v"),
    ],
    ids=["null", "headers", "an earlier time", "a later time", "a longer value", "a long key"],
)
def test_a_run_ends_before_a_record_that_is_not_like_it(record: RecordLike) -> None:
    data = records_of(PLAIN, PLAIN, record, PLAIN)
    assert run_of(data, 4)[0] == 2


def test_a_run_ends_where_the_offset_is_not_the_next() -> None:
    assert run_of(records_of(PLAIN, PLAIN), 2, 1)[0] == 0


def test_where_the_data_ends_no_run_is_begun() -> None:
    assert run_of(b"", 3)[0] == 0
    assert run_of(records_of(PLAIN)[:-1], 3)[0] == 0


@pytest.mark.parametrize(
    "records",
    [
        [PLAIN, (NOW + 3, b"key", b"value"), PLAIN],
        [(NOW, None, b""), (NOW, b"", b""), (NOW, b"", b"")],
        [(NOW, b"k", bytes(64))],
        [(NOW, b"", b"v"), (NOW - 129, None, b"")],  # as if of one shape, the second has a key
    ],
    ids=["short", "empty", "long", "misleading"],
)
def test_whatever_a_byte_says_is_read_as_it_is_one_by_one(records: Sequence[RecordLike]) -> None:
    """Makes each byte of the records another, one at a time: one like it, or one with a meaning of its own."""
    sound = encode_batch(records)
    for position in range(HEADER_BYTES, len(sound)):
        was = sound[position]
        for byte in {was, 0, 1, 2, 3, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF, *(was ^ mask for mask in (1, 2, 3, 4, 0x80))}:
            data = bytearray(sound)
            data[position] = byte
            batch = RecordBatch(parse_header(data), memoryview(data))
            assert decoded(batch, 1) == decoded(batch, 2**31), (position, byte)


def test_runs_and_others_take_turns() -> None:
    records: list[RecordLike] = []
    for number in range(300):
        records.append((NOW + number, b"%d" % number, b"x" * (number % 90)))
        if number % 37 == 0:
            records.append((NOW, None, None, [("h", b"%d" % number)]))
    data = encode_batch(records)
    columns = decode_columns(RecordBatch(parse_header(data), memoryview(data)))
    assert columns == (
        list(range(len(records))),
        [record[0] for record in records],
        [record[1] for record in records],
        [record[2] for record in records],
        [tuple(record[3]) if len(record) == 4 else () for record in records],
    )
