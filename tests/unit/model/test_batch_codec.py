"""Records to bytes and back, and every way in which bytes can lie."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
from crc32c import crc32c

import tidelog.model.batch_codec
from tidelog.model.batch_codec import decode_batch, empty_batch, encode_batch, encode_steps
from tidelog.model.batch_header import (
    HEADER,
    HEADER_BYTES,
    TIMESTAMP_MS_MAX,
    BatchHeader,
    Compression,
    RecordBatch,
    iter_batches,
    parse_header,
    split_batches,
    verify_batch,
)
from tidelog.model.errors import InvalidBatch, InvalidRequest, TooLarge, UnprocessableBody
from tidelog.model.records import Record, RecordLike, StoredRecord
from tidelog.model.steps import Steps, drive
from tidelog.model.varint import encode_varint


def decode(data: bytes | bytearray) -> list[StoredRecord]:
    (batch,) = iter_batches(data)
    return decode_batch(batch)


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


# -- round trips -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", Compression)
def test_nulls_tombstones_empties_and_headers_survive(compression: Compression) -> None:
    records = [
        Record(1_000, b"key", b"value"),
        Record(1_000, None, b"no key"),
        Record(1_005, b"tombstone", None),
        Record(999, None, None),
        Record(1_000, b"", b""),
        Record(
            1_000, b"k", b"v", [("name", b"content"), ("name", b"again"), ("null", None), ("empty", b""), ("", b"x")]
        ),
        Record(1_000, b"k", b"v", (("Δ☃", b"\x00\xff"),)),
    ]
    decoded = decode(encode_batch(records, compression=compression, base_offset=10))
    assert decoded == [StoredRecord(10 + i, *record[:3], tuple(record.headers)) for i, record in enumerate(records)]


def test_plain_tuples_and_records_encode_alike() -> None:
    triples: list[RecordLike] = [(5, b"k%d" % index, b"v" * index) for index in range(100)]
    expected = encode_batch(triples)
    assert encode_batch([Record(*triple) for triple in triples]) == expected
    assert encode_batch([(*triple, ()) for triple in triples]) == expected
    assert encode_batch([triples[0], *(Record(*triple) for triple in triples[1:])]) == expected
    assert encode_batch([Record(*triples[0]), *triples[1:]]) == expected


@pytest.mark.parametrize("first", [(1, b"k", b"v"), (1, b"k", b"v", ()), (1, b"k", b"v", [("h", None)])])
@pytest.mark.parametrize("second", [(1, b"k", b"v"), (1, b"k", b"v", ()), (1, b"k", b"v", [("h", None)])])
def test_records_with_and_without_headers_mix(first: RecordLike, second: RecordLike) -> None:
    decoded = decode(encode_batch([first, second]))
    assert [record.headers for record in decoded] == [
        tuple(first[3]) if len(first) > 3 else (),
        tuple((*second, ())[3]),
    ]


@pytest.mark.parametrize("size", [0, 1, 63, 64, 8190, 8191, 8192, 8193, 1_048_576, 3_000_000])
def test_lengths_around_every_varint_width(size: int) -> None:
    records: list[RecordLike] = [
        (1, b"k" * size, b"v"),
        (1, b"k", b"v" * size),
        (1, None, b"between"),
        (1, b"", b"v" * size),
    ]
    assert [record[1:4] for record in decode(encode_batch(records))] == [tuple(record) for record in records]


@pytest.mark.parametrize("delta", [0, 1, 63, 64, 8191, 8192, 10**6, 10**12, TIMESTAMP_MS_MAX - 10**12])
def test_timestamps_may_go_anywhere_from_the_first(delta: int) -> None:
    base = 10**12
    timestamps = [base, base + delta, max(-1, base - delta), base, -1]
    data = encode_batch([(timestamp, b"k", b"v") for timestamp in timestamps])
    assert [record.timestamp_ms for record in decode(data)] == timestamps
    assert parse_header(data).base_timestamp == base
    assert parse_header(data).max_timestamp == base + delta


def test_more_records_than_the_varint_table_has() -> None:
    records = [(number, None, b"%d" % number) for number in range(20_000)]
    decoded = decode(encode_batch(records))
    assert [record.offset for record in decoded] == list(range(20_000))
    assert [tuple(record[1:4]) for record in decoded] == records


def test_buffers_other_than_bytes_are_taken() -> None:
    (record,) = decode(encode_batch([(1, bytearray(b"key"), memoryview(b"value"))]))  # type: ignore[list-item]
    assert record[2:4] == (b"key", b"value")


def test_decoded_records_are_named_and_typed() -> None:
    (record,) = decode(encode_batch([(7, b"key", None, [("h", b"1")])], base_offset=3))
    assert type(record) is StoredRecord
    assert record == StoredRecord(offset=3, timestamp_ms=7, key=b"key", value=None, headers=(("h", b"1"),))
    assert type(record.key) is bytes


# -- encode_batch ----------------------------------------------------------------------------------------------------


def test_the_header_that_is_written() -> None:
    data = encode_batch(
        [(50, None, b"a"), (70, None, b"b"), (60, None, b"c")],
        base_offset=9, leader_epoch=4, producer_id=2**40, producer_epoch=3, base_sequence=2**31 - 1,
    )  # fmt: skip
    header = verify_batch(data)
    assert header == BatchHeader(9, len(data) - 12, 4, 2, header.crc, 0, 2, 50, 70, 2**40, 3, 2**31 - 1, 3)
    defaults = verify_batch(encode_batch([(1, None, None)]))
    assert defaults[9:12] == (-1, -1, -1)
    assert (defaults.base_offset, defaults.leader_epoch) == (0, -1)


def test_the_result_is_a_buffer_to_patch_and_a_broker_takes_it() -> None:
    data = encode_batch([(1, b"k", b"v")])
    assert type(data) is bytearray
    (batch,) = split_batches(data, batch_bytes_max=len(data))
    assert not batch.data.readonly


def test_the_same_records_give_the_same_bytes() -> None:
    records = [(number, b"k", b"v" * number) for number in range(300)]
    for codec in Compression:
        assert encode_batch(records, compression=codec) == encode_batch(records, compression=codec)


def test_a_batch_has_records() -> None:
    with pytest.raises(UnprocessableBody, match="no records"):
        encode_batch([])
    with pytest.raises(UnprocessableBody, match="no records"):
        drive(encode_steps([], Compression.NONE))


def test_a_batch_without_records_takes_offsets() -> None:
    data = empty_batch(100, 107, 4)
    verify_batch(data)
    (batch,) = iter_batches(data)
    assert (batch.header.base_offset, batch.header.next_offset, batch.header.leader_epoch) == (100, 107, 4)
    assert decode_batch(batch) == []


@pytest.mark.parametrize("timestamp", [-2, TIMESTAMP_MS_MAX + 1, 2**63, -(2**63)])
@pytest.mark.parametrize("headers", [(), [("h", b"")]])
@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_timestamp_out_of_range_is_refused(timestamp: int, headers: Sequence[tuple[str, bytes]], index: int) -> None:
    records = [Record(1, b"k", b"v", headers)] * 3
    records[index] = records[index]._replace(timestamp_ms=timestamp)
    with pytest.raises(InvalidRequest, match="out of range"):
        encode_batch(records)
    with pytest.raises(InvalidRequest, match="out of range"):
        encode_batch([record[:3] for record in records])


def test_a_timestamp_a_little_too_late_is_refused() -> None:
    assert encode_batch([(TIMESTAMP_MS_MAX - 1, None, b""), (TIMESTAMP_MS_MAX, None, b"")])
    with pytest.raises(InvalidRequest, match="out of range"):
        encode_batch([(TIMESTAMP_MS_MAX, None, b""), (TIMESTAMP_MS_MAX + 1, None, b"")])


@pytest.mark.parametrize("fields", [{"producer_id": 2**63}, {"producer_epoch": 2**15}, {"base_sequence": 2**31}])
def test_a_number_too_big_for_its_field_is_refused(fields: dict[str, int]) -> None:
    with pytest.raises(InvalidRequest, match="out of range"):
        encode_batch([(1, b"k", b"v")], **fields)  # type: ignore[arg-type]


def test_a_batch_that_batch_length_cannot_express_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(encode_batch([(1, b"k", b"v")]))
    monkeypatch.setattr(tidelog.model.batch_codec, "BATCH_BYTES_MAX", size)
    assert len(encode_batch([(1, b"k", b"v")])) == size
    with pytest.raises(TooLarge, match="send fewer"):
        encode_batch([(1, b"k", b"vv")])


# -- decode_batch: what records mean ---------------------------------------------------------------------------------


def test_a_control_batch_has_no_records_for_consumers() -> None:
    marker = raw_batch(raw_record(b"\0" + varints(0, 0, 4) + b"\0\0\0\1" + varints(-1, 0)), 1, attributes=0x30)
    assert decode_batch(marker) == []


def test_a_transactional_batch_is_read_like_any_other() -> None:
    record = raw_record(b"\0" + varints(0, 0, -1, -1, 0))
    assert len(decode_batch(raw_batch(record, 1, attributes=0x10))) == 1


def test_log_append_time_overrides_every_record() -> None:
    data = encode_batch([(5, b"a", None), (6, b"b", None, [("h", None)])])
    header = parse_header(data)._replace(attributes=0x08, max_timestamp=99)
    records = decode_batch(RecordBatch(header, memoryview(data)))
    assert [record[1:] for record in records] == [(99, b"a", None, ()), (99, b"b", None, (("h", None),))]


def test_compaction_leaves_gaps_and_may_leave_nothing() -> None:
    records = [raw_record(b"\0" + varints(0, delta, -1, -1, 0)) for delta in (1, 2, 70, 9000)]
    batch = raw_batch(b"".join(records), 4, base_offset=100, last_offset_delta=9500)
    assert [record.offset for record in decode_batch(batch)] == [101, 102, 170, 9100]
    assert decode_batch(raw_batch(b"", 0, last_offset_delta=4)) == []


def test_a_header_name_that_is_not_utf8_is_shown_as_java_shows_it() -> None:
    record = raw_record(b"\0" + varints(0, 0, -1, -1, 1, 2) + b"a\xff" + varints(-1))
    assert decode_batch(raw_batch(record, 1))[0].headers == (("a�", None),)


def test_lengths_may_be_written_longer_than_needed() -> None:
    """`80 00` is a zero of two bytes: no encoder writes it, every decoder reads it."""
    record = raw_record(b"\0\x80\x00\x80\x80\x00\x82\x00k\x82\x80\x00v\x80\x00")
    assert decode_batch(raw_batch(record, 1)) == [StoredRecord(0, 1000, b"k", b"v", ())]
    nulls = raw_record(b"\0" + varints(0, 0) + b"\x81\x00\x81\x80\x00\x00")
    assert decode_batch(raw_batch(nulls, 1)) == [StoredRecord(0, 1000, None, None, ())]


def test_the_last_offset_there_is() -> None:
    (batch,) = iter_batches(encode_batch([(1, b"k", b"v")], base_offset=2**63 - 2))
    assert decode_batch(batch)[0].offset == 2**63 - 2


def test_a_batch_of_another_size_than_its_header_says_is_refused() -> None:
    data = encode_batch([(1, b"k", b"v")])
    for view in (memoryview(data)[:-1], memoryview(data + b"?")):
        with pytest.raises(InvalidBatch, match="the header says"):
            decode_batch(RecordBatch(parse_header(data), view))


# -- decode_batch: compressed records --------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", list(Compression)[1:])
def test_records_that_are_not_of_their_codec(codec: Compression) -> None:
    with pytest.raises(InvalidBatch):
        decode_batch(raw_batch(raw_record(b"\0" + varints(0, 0, -1, -1, 0)), 1, attributes=int(codec)))


@pytest.mark.parametrize("codec", list(Compression)[1:])
def test_records_decompress_within_a_bound(codec: Compression) -> None:
    (batch,) = iter_batches(encode_batch([(1, None, bytes(100_000))], compression=codec))
    assert len(decode_batch(batch)) == 1
    assert len(decode_batch(batch, decompressed_bytes_max=101_000)) == 1
    with pytest.raises(TooLarge):
        decode_batch(batch, decompressed_bytes_max=100_000)


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("headers", [(), (("h", b"1"),)])
def test_a_batch_built_in_slices_is_the_same(codec: Compression, headers: tuple[tuple[str, bytes], ...]) -> None:
    records = [Record(50_000 - index, b"k", b"v" * (index % 70), headers) for index in range(9_500)]
    steps, slices = encode_steps(records, codec), 0

    def counted() -> Steps[bytearray]:
        nonlocal slices
        step = next(steps)
        while True:
            slices += 1
            result = yield step
            try:
                step = steps.send(result)
            except StopIteration as end:
                built: bytearray = end.value
                return built

    assert drive(counted()) == encode_batch(records, compression=codec)
    assert slices == 9 + (codec is not Compression.NONE)
