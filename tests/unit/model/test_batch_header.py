"""The 61 bytes: what is read, what is refused and why, and what a broker patches in place."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from tidelog.model.batch_codec import decode_batch, encode_batch
from tidelog.model.batch_header import (
    HEADER,
    HEADER_BYTES,
    TIMESTAMP_MS_MAX,
    BatchHeader,
    Compression,
    RecordBatch,
    assign_offsets,
    check_header,
    iter_batches,
    parse_header,
    split_batches,
    stamp_append_time,
    stamp_producer,
    verify_batch,
)
from tidelog.model.errors import CorruptBatch, InvalidBatch, InvalidRequest, TooLarge, UnprocessableBody

RECORDS = [(1_000, b"key-0", b"value-0"), (1_003, None, b"value-1"), (1_001, b"key-2", None)]


def batch(**fields: int) -> bytearray:
    """A sound batch with some header fields set to something else, and its CRC true."""
    data = encode_batch(RECORDS)
    if fields:
        HEADER.pack_into(data, 0, *parse_header(data)._replace(**fields))
        struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return data


def split(data: bytes | bytearray) -> list[RecordBatch]:
    return split_batches(data, batch_bytes_max=1_000_000)


def test_a_header_is_read_field_by_field() -> None:
    data = struct.pack(">qiibIhiqqqhii", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)
    assert len(data) == HEADER_BYTES == 61
    assert parse_header(b"??" + data, 2) == BatchHeader(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)


@pytest.mark.parametrize(("size", "position"), [(0, 0), (60, 0), (61, 1), (10, 500)])
def test_fewer_than_61_bytes_are_no_header(size: int, position: int) -> None:
    with pytest.raises(InvalidBatch, match=f"at least 61 bytes, and {max(0, size - position)} are left"):
        parse_header(bytes(size), position)


def test_what_a_header_says_about_its_batch() -> None:
    header = parse_header(encode_batch(RECORDS, base_offset=40, compression=Compression.ZSTD))
    assert header.size == len(encode_batch(RECORDS, compression=Compression.ZSTD))
    assert (header.last_offset, header.next_offset, header.record_count) == (42, 43, 3)
    assert (header.base_timestamp, header.max_timestamp) == (1_000, 1_003)
    assert header.compression is Compression.ZSTD
    assert (header.is_control, header.is_transactional, header.is_log_append_time) == (False, False, False)


@pytest.mark.parametrize(
    ("attributes", "flags"),
    [(0x08, (False, False, True)), (0x10, (False, True, False)), (0x20, (True, False, False))],
)
def test_attribute_bits(attributes: int, flags: tuple[bool, bool, bool]) -> None:
    header = verify_batch(batch(attributes=attributes))
    assert (header.is_control, header.is_transactional, header.is_log_append_time) == flags
    assert header.compression is Compression.NONE


def test_codecs_have_kafkas_names() -> None:
    assert [codec.label for codec in Compression] == ["none", "gzip", "snappy", "lz4", "zstd"]
    assert all(Compression.from_name(codec.label) is codec for codec in Compression)
    with pytest.raises(InvalidRequest, match=r"'brotli'.*none, gzip, snappy, lz4, zstd"):
        Compression.from_name("brotli")


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unchecked_header_may_name_no_codec(codec: int) -> None:
    with pytest.raises(InvalidBatch, match=f"codec {codec}"):
        _ = parse_header(batch(attributes=codec)).compression


# -- verify_batch ----------------------------------------------------------------------------------------------------


def test_a_sound_batch_verifies_whatever_its_offset_and_epoch() -> None:
    assert verify_batch(batch()) == parse_header(batch())
    assert verify_batch(batch(base_offset=2**60, leader_epoch=7)).base_offset == 2**60


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"magic": 0}, "magic is 0"),
        ({"magic": 1}, "magic is 1"),
        ({"magic": 3}, "magic is 3"),
        ({"batch_length": 48}, "shorter than the header"),
        ({"batch_length": -1}, "shorter than the header"),
        ({"batch_length": 500}, "says 512 bytes"),
        ({"attributes": 5}, "codec 5"),
        ({"record_count": -1}, "record_count"),
        ({"record_count": 4}, "record_count"),
        ({"last_offset_delta": 1}, "record_count"),
        ({"last_offset_delta": -1, "record_count": 0}, "record_count"),
    ],
)
def test_a_header_that_contradicts_itself_is_refused(fields: dict[str, int], message: str) -> None:
    with pytest.raises(InvalidBatch, match=message) as refused:
        verify_batch(batch(**fields))
    assert refused.type is InvalidBatch, "clients that send it again would be refused again"
    with pytest.raises(InvalidBatch):
        split(batch(**fields))


def test_every_flipped_bit_behind_the_leaders_fields_is_noticed() -> None:
    data = batch()
    for bit in [*range(8 * 8, 8 * 12), *range(8 * 16, 8 * len(data))]:
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(InvalidBatch):
            verify_batch(data)
        data[bit // 8] ^= 1 << bit % 8
    verify_batch(data)


def test_a_compacted_or_control_batch_is_sound_in_a_log() -> None:
    assert verify_batch(batch(last_offset_delta=9)).next_offset == 10
    assert verify_batch(batch(attributes=0x30)).is_control
    check_header(parse_header(batch(record_count=0)))


@pytest.mark.parametrize("size", [-1, 1])
def test_exactly_one_batch_is_verified(size: int) -> None:
    data = batch()
    with pytest.raises(InvalidBatch, match="the header says"):
        verify_batch(data + b"\0" if size > 0 else data[:-1])


# -- split_batches: the produce path ---------------------------------------------------------------------------------


def test_a_body_is_cut_into_its_batches() -> None:
    body = batch() + encode_batch([(5, b"k", b"v" * 500)], compression=Compression.LZ4) + batch()
    first, second, third = split(body)
    assert bytes(first.data) == bytes(third.data) == batch()
    assert first.header == parse_header(batch())
    assert [record.value for record in decode_batch(second)] == [b"v" * 500]


def test_the_batches_are_views_to_be_patched() -> None:
    body = batch() + batch()
    _, second = split(body)
    assign_offsets(second, 77, 1)
    assert parse_header(body, len(batch())).base_offset == 77


def test_a_read_only_body_is_copied_to_be_patched() -> None:
    body = bytes(batch())
    (only,) = split(body)
    assign_offsets(only, 77, 1)
    assert parse_header(only.data).base_offset == 77
    assert parse_header(body).base_offset == 0


def test_an_empty_body_is_unprocessable() -> None:
    with pytest.raises(UnprocessableBody, match="at least one"):
        split(b"")


@pytest.mark.parametrize("kept", [1, 20, 60, 61, 80])
def test_a_cut_body_is_refused_as_a_whole(kept: int) -> None:
    with pytest.raises(InvalidBatch, match=rf"batch 1, at byte {len(batch())}:"):
        split(batch() + batch()[:kept])


def test_bounds_are_too_large_not_invalid() -> None:
    size = len(batch())
    assert len(split_batches(batch(), batch_bytes_max=size)) == 1
    with pytest.raises(TooLarge, match=r"max\.message\.bytes"):
        split_batches(batch(), batch_bytes_max=size - 1)
    assert len(split_batches(batch() * 3, batch_bytes_max=size, batches_max=3)) == 3
    with pytest.raises(TooLarge, match="more than 2"):
        split_batches(batch() * 3, batch_bytes_max=size, batches_max=2)


def test_a_damaged_second_batch_is_named() -> None:
    body = batch() + batch()
    body[-1] ^= 1
    with pytest.raises(CorruptBatch, match=rf"batch 1, at byte {len(batch())}: CRC32C"):
        split(body)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"attributes": 0x20}, "control"),
        ({"attributes": 0x10}, "transactional"),
        ({"attributes": 0x08}, "log-append-time"),
        ({"attributes": 0x40}, "unknown attribute bits 0x0040"),
        ({"attributes": -32768}, "unknown attribute bits"),
        ({"record_count": 0, "last_offset_delta": 0}, "record_count"),
        ({"record_count": 2}, "record_count"),
        ({"base_timestamp": -2}, "timestamp -2"),
        ({"max_timestamp": -2}, "timestamp -2"),
        ({"base_timestamp": TIMESTAMP_MS_MAX + 1}, "timestamp"),
        ({"max_timestamp": TIMESTAMP_MS_MAX + 1}, "timestamp"),
        ({"producer_id": -2}, "producer_id -2"),
        ({"producer_id": 5}, "needs a producer_epoch"),
        ({"producer_id": 5, "producer_epoch": 0}, "needs a producer_epoch"),
        ({"producer_id": 5, "base_sequence": 0}, "needs a producer_epoch"),
        ({"producer_id": 0}, "needs a producer_epoch"),
    ],
)
def test_what_a_producer_may_not_send(fields: dict[str, int], message: str) -> None:
    with pytest.raises(InvalidBatch, match=message):
        split(batch(**fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"base_offset": -5, "leader_epoch": 99},
        {"base_timestamp": -1, "max_timestamp": -1},
        {"max_timestamp": TIMESTAMP_MS_MAX},
        {"producer_id": 2**62, "producer_epoch": 0, "base_sequence": 0},
        {"producer_id": 0, "producer_epoch": 0, "base_sequence": 0},
    ],
)
def test_what_a_producer_may_send(fields: dict[str, int]) -> None:
    assert len(split(batch(**fields))) == 1


def test_records_inside_a_true_crc_are_not_looked_at() -> None:
    data = batch()
    data[HEADER_BYTES:] = b"?" * (len(data) - HEADER_BYTES)
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    assert len(split(data)) == 1


# -- iter_batches: the read path -------------------------------------------------------------------------------------


def test_a_fetch_is_walked_and_its_cut_end_left_out() -> None:
    whole = bytes(batch(base_offset=5) + batch(base_offset=8))
    for kept in range(len(batch())):
        headers = [each.header for each in iter_batches(whole + batch()[:kept])]
        assert [header.base_offset for header in headers] == [5, 8]
    assert [bytes(each.data) for each in iter_batches(whole)] == [batch(base_offset=5), batch(base_offset=8)]


def test_a_walk_ends_at_what_cannot_be_a_header() -> None:
    walk = iter_batches(batch() + batch(batch_length=0))
    assert next(walk).header == parse_header(batch())
    with pytest.raises(InvalidBatch):
        next(walk)


def test_a_walk_computes_no_crc() -> None:
    data = batch()
    data[-1] ^= 1
    assert len(list(iter_batches(data))) == 1


# -- patches ---------------------------------------------------------------------------------------------------------


def test_assigning_offsets_leaves_the_crc_true_and_the_rest_alone() -> None:
    data = batch()
    (before,) = split(data)
    after = assign_offsets(before, 2**40, 3)
    assert after.header == before.header._replace(base_offset=2**40, leader_epoch=3) == verify_batch(data)
    assert data[16:] == batch()[16:]
    assert [record.offset for record in decode_batch(after)] == [2**40, 2**40 + 1, 2**40 + 2]


def test_append_time_holds_for_every_record() -> None:
    data = batch()
    after = stamp_append_time(split(data)[0], 123_456)
    assert verify_batch(data) == after.header
    assert after.header.is_log_append_time
    assert after.header.max_timestamp == 123_456
    assert after.header.base_timestamp == 1_000
    assert {record.timestamp_ms for record in decode_batch(after)} == {123_456}


def test_append_time_keeps_the_codec() -> None:
    (before,) = split(encode_batch(RECORDS, compression=Compression.GZIP))
    assert stamp_append_time(before, 1).header.compression is Compression.GZIP


def test_a_producer_is_stamped_under_the_crc() -> None:
    data = batch()
    after = stamp_producer(split(data)[0], 2**62 + 1, 0, 17)
    assert verify_batch(data) == after.header
    assert after.header[9:12] == (2**62 + 1, 0, 17)
    assert data[HEADER_BYTES:] == batch()[HEADER_BYTES:]


def test_a_read_only_batch_cannot_be_patched() -> None:
    (only,) = iter_batches(bytes(batch()))
    with pytest.raises(TypeError):
        assign_offsets(only, 1, 1)
