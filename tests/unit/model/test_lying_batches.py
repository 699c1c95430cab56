"""Batches with a true CRC whose records, or header, lie: every decoder refuses every lie, and says `InvalidBatch`."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from crc32c import crc32c

import tidelog.model.arrow
from tidelog.model.arrow import decode_to_arrow
from tidelog.model.batch_codec import decode_batch
from tidelog.model.batch_header import (
    HEADER,
    HEADER_BYTES,
    TIMESTAMP_MS_MAX,
    BatchHeader,
    RecordBatch,
    parse_header,
    verify_batch,
)
from tidelog.model.errors import InvalidBatch
from tidelog.model.varint import encode_varint

Decoder = Callable[[RecordBatch], object]


def by_arrow(batch: RecordBatch) -> object:
    return decode_to_arrow(batch.data, "t", 0, include_headers=True)


@pytest.fixture(params=["decode_batch", "arrow, one by one", "arrow, together"])
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Decoder:
    together = request.param == "arrow, together"
    monkeypatch.setattr(tidelog.model.arrow, "VECTORISED_RECORDS_MIN", 1 if together else 2**40)
    return decode_batch if request.param == "decode_batch" else by_arrow


def varints(*values: int) -> bytes:
    return b"".join(map(encode_varint, values))


def raw_record(body: bytes, *, length: int | None = None) -> bytes:
    return encode_varint(len(body) if length is None else length) + body


def raw_batch(records: bytes, count: int, **fields: int) -> RecordBatch:
    """A batch whose header and CRC are sound, around any bytes at all."""
    header = BatchHeader(0, len(records) + HEADER_BYTES - 12, 0, 2, 0, 0, count - 1, 1000, 1000, -1, -1, -1, count)
    data = bytearray(HEADER.pack(*header._replace(**fields)) + records)
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return RecordBatch(parse_header(data), memoryview(data))


SOUND = raw_record(b"\0" + varints(0, 0, 1) + b"k" + varints(1) + b"v" + varints(0))
SECOND = raw_record(b"\0" + varints(0, 1, -1, -1, 0))
HUGE = 2**60
LIES: dict[str, tuple[bytes, int] | tuple[bytes, int, int]] = {  # records, their count, and a last offset delta
    "nothing there": (b"", 1),
    "fewer records than counted": (SOUND, 2),
    "more records than counted": (SOUND + SECOND, 1),
    "an absurd count": (SOUND, 2**31 - 1),
    "a cut record": (SOUND[:-1], 1),
    "a record longer than the batch": (raw_record(SOUND[1:], length=HUGE), 1),
    "a record longer than its parts": (raw_record(b"\0" + varints(0, 0, -1, -1, 0) + b"?"), 1),
    "a record shorter than its parts": (raw_record(SOUND[1:], length=3) + b"", 1),
    "a record of negative length": (raw_record(SOUND[1:], length=-len(SOUND)), 1),
    "a record of minus its length": (raw_record(SOUND[1:], length=1 - len(SOUND)), 1),
    "a key longer than the batch": (raw_record(b"\0" + varints(0, 0, HUGE, -1, 0)), 1),
    "a key longer than its record": (raw_record(b"\0" + varints(0, 0, 3) + b"k" + varints(0, 0)), 1),
    "a key of length -2": (raw_record(b"\0" + varints(0, 0, -2, -1, 0)), 1),
    "a key of a very negative length": (raw_record(b"\0" + varints(0, 0, -HUGE, -1, 0)), 1),
    "a value longer than the batch": (raw_record(b"\0" + varints(0, 0, -1, HUGE, 0)), 1),
    "a value that takes the header count": (raw_record(b"\0" + varints(0, 0, -1, 1, 0)), 1),
    "a value of length -2": (raw_record(b"\0" + varints(0, 0, -1, -2, 0)), 1),
    "a value of a long negative length": (raw_record(b"\0" + varints(0, 0, -1, -9000, 0)), 1),
    "a varint without end": (b"\xff" * 40, 1),
    "a timestamp varint without end": (raw_record(b"\0" + b"\xff" * 20), 1),
    "a timestamp beyond all time": (raw_record(b"\0" + varints(TIMESTAMP_MS_MAX + 2, 0, -1, -1, 0)), 1),
    "a timestamp before all time": (raw_record(b"\0" + varints(-(2**63), 0, -1, -1, 0)), 1),
    "a negative offset": (raw_record(b"\0" + varints(0, -1, -1, -1, 0)), 1),
    "an offset outside the batch": (raw_record(b"\0" + varints(0, 1, -1, -1, 0)), 1),
    "a negative offset where compaction left gaps": (raw_record(b"\0" + varints(0, -1, -1, -1, 0)), 1, 9),
    "an offset twice": (SOUND + SOUND, 2),
    "headers missing, their count negative": (raw_record(b"\0" + varints(0, 0, -1, -1, -64)), 1),
    "headers missing": (raw_record(b"\0" + varints(0, 0, -1, -1, 1)), 1),
    "headers missing before another record": (raw_record(b"\0" + varints(0, 0, -1, -1)) + SECOND, 2),
    "a negative header count": (raw_record(b"\0" + varints(0, 0, -1, -1, -1)), 1),
    "an absurd header count": (raw_record(b"\0" + varints(0, 0, -1, -1, HUGE)), 1),
    "a header without a name": (raw_record(b"\0" + varints(0, 0, -1, -1, 1, -1, -1)), 1),
    "a header name of length -2": (raw_record(b"\0" + varints(0, 0, -1, -1, 1, -2, -1)), 1),
    "a header name longer than the batch": (raw_record(b"\0" + varints(0, 0, -1, -1, 1, HUGE, -1)), 1),
    "a header value longer than the batch": (raw_record(b"\0" + varints(0, 0, -1, -1, 1, 0, HUGE)), 1),
    "headers that go back and come out even": (raw_record(b"\0" + varints(0, 0, -1, -1, 2, -2, 0, 0, -1)), 1),
    "a header beyond its record": (raw_record(b"\0" + varints(0, 0, -1, -1, 1), length=6) + varints(0, -1), 1),
}


def test_the_truth_is_accepted(decoder: Decoder) -> None:
    decoder(raw_batch(SOUND, 1))


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_an_invalid_batch(lie: str, decoder: Decoder) -> None:
    records, count, *last_offset_delta = LIES[lie]
    batch = raw_batch(records, count, **({"last_offset_delta": last_offset_delta[0]} if last_offset_delta else {}))
    verify_batch(batch.data)
    with pytest.raises(InvalidBatch):
        decoder(batch)


@pytest.mark.parametrize(
    "fields",
    [
        {"magic": 1},
        {"record_count": 3},
        {"record_count": -1},
        {"base_offset": -1},
        {"base_offset": 2**63 - 1},
        {"attributes": 6},
        {"base_timestamp": TIMESTAMP_MS_MAX + 1},
        {"base_timestamp": -(2**63)},
        {"max_timestamp": 2**63 - 1},
    ],
)
def test_a_header_that_lies_is_an_invalid_batch(fields: dict[str, int], decoder: Decoder) -> None:
    with pytest.raises(InvalidBatch):
        decoder(raw_batch(SOUND, 1, **fields))


@pytest.mark.parametrize("records_min", [1, 2**40])
def test_a_missing_header_count_is_noticed_even_if_headers_are_not_asked_for(
    records_min: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidelog.model.arrow, "VECTORISED_RECORDS_MIN", records_min)
    records, count, *_ = LIES["headers missing before another record"]
    with pytest.raises(InvalidBatch):
        decode_to_arrow(raw_batch(records, count).data, "t", 0)
