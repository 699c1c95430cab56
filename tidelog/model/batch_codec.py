"""Encodes records as batches and decodes them. Producers, consumers and the HTTP listener do this, a broker's log never
does.

A record inside a batch, after `batch_header`'s 61 bytes (all integers zigzag varints but `attributes`):

    length | attributes int8, 0 | timestamp delta | offset delta
           | key length, -1 is null | key | value length, -1 is null | value
           | header count | { name length | name, UTF-8 | value length, -1 is null | value }

Deltas count from `base_timestamp` and `base_offset`. `record_encoder` and `record_decoder` hold the two loops.

Follows `org.apache.kafka.common.record.DefaultRecord` and `DefaultRecordBatch`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import partial

from tidelog.model.batch_header import (
    CONTROL_BIT,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    TIMESTAMP_MS_MAX,
    BatchHeader,
    Compression,
    RecordBatch,
    SpreadBatch,
    check_header,
    parse_header,
    seal,
    seal_spread,
)
from tidelog.model.compression import compress, decompress
from tidelog.model.errors import InvalidBatch, InvalidRequest, TooLarge, UnprocessableBody
from tidelog.model.ids import OFFSET_MAX
from tidelog.model.ports import Buffer
from tidelog.model.record_decoder import Columns, decode_records
from tidelog.model.record_encoder import encode_around, encode_records
from tidelog.model.records import RecordLike, StoredRecord
from tidelog.model.steps import AWAY_BYTES, SLICE_RECORDS, Meter, Steps

DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
"""Default bound on the decompressed bytes of one batch's records."""

BATCH_BYTES_MAX = 2**31 - 1
"""The largest batch in bytes that `batch_length`, an int32, can express."""

_stored_record = partial(tuple.__new__, StoredRecord)


def encode_batch(
    records: Sequence[RecordLike],
    *,
    compression: Compression = Compression.NONE,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_final: bool = True,
) -> bytearray:
    """Returns one sound batch of all `records`, each `(timestamp_ms, key, value)` or with headers as a fourth item.

    The result may be patched in place (`assign_offsets`, `stamp_append_time`, `stamp_producer`). With `is_final=False`
    no checksum is computed: `number` or `seal` of `batch_header` writes it later.

    Raises `UnprocessableBody` if there are no records, `InvalidRequest` if a number does not fit its field, `TooLarge`
    over 2 GiB.
    """
    if not records:
        raise UnprocessableBody("no records: a batch has at least one")
    parts, max_timestamp = encode_records(records)
    if compression:
        parts = [compress(compression, b"".join(parts))]
    return _framed(
        parts,
        records,
        max_timestamp,
        compression,
        (base_offset, leader_epoch),
        (producer_id, producer_epoch, base_sequence),
        is_final=is_final,
    )


def encode_steps(records: Sequence[RecordLike], compression: Compression) -> Steps[bytearray]:
    """Encodes a batch as `encode_batch` does, as a generator of slices of work (`model/steps.py`)."""
    if not records:
        raise UnprocessableBody("no records: a batch has at least one")
    parts: list[bytes] = []
    base_timestamp = max_timestamp = records[0][0]
    meter = Meter()
    for first in range(0, len(records), SLICE_RECORDS):
        some = records[first : first + SLICE_RECORDS]
        more, latest = encode_records(some, first, base_timestamp)
        parts += more
        max_timestamp = max(max_timestamp, latest)
        if meter.is_over(len(some), 0):
            yield None
    if compression:
        data = b"".join(parts)
        squeeze = partial(compress, compression, data)
        parts = [(yield squeeze) if len(data) > AWAY_BYTES else squeeze()]
    return _framed(parts, records, max_timestamp, compression)


def _framed(
    parts: list[bytes],
    records: Sequence[RecordLike],
    max_timestamp: int,
    compression: Compression,
    place: tuple[int, int] = (0, -1),
    producer: tuple[int, int, int] = (-1, -1, -1),
    *,
    is_final: bool = True,
) -> bytearray:
    base_offset, leader_epoch = place
    parts.insert(0, bytes(HEADER_BYTES))
    batch = bytearray().join(parts)
    if len(batch) > BATCH_BYTES_MAX:
        raise TooLarge(f"{len(records)} records make a batch of {len(batch)} bytes: send fewer at once")
    try:
        HEADER.pack_into(
            batch, 0, base_offset, len(batch) - 12, leader_epoch, MAGIC, 0, compression, len(records) - 1,
            records[0][0], max_timestamp, *producer, len(records),
        )  # fmt: skip
    except struct.error as error:
        raise InvalidRequest(f"a batch field is out of range: {error}") from None
    if is_final:
        seal(batch)
    return batch


def empty_batch(base_offset: int, next_offset: int, leader_epoch: int) -> bytes:
    """Returns a batch without records that occupies the offsets [base_offset, next_offset)."""
    batch = bytearray(HEADER_BYTES)
    HEADER.pack_into(
        batch, 0, base_offset, HEADER_BYTES - 12, leader_epoch, MAGIC, 0, Compression.NONE,
        next_offset - base_offset - 1, -1, -1, -1, -1, -1, 0,
    )  # fmt: skip
    seal(batch)
    return bytes(batch)


def spread_control_batch(
    key: bytes | None,
    value: Buffer | None,
    *,
    timestamp_ms: int,
    base_offset: int,
    leader_epoch: int,
    base_sequence: int,
) -> SpreadBatch:
    """Returns a control batch of one record. Brokers write control batches for themselves, and consumers never see
    them. The value is not copied."""
    opening, closing = encode_around(key, None if value is None else len(value))
    first = bytearray().join((bytes(HEADER_BYTES), opening))
    rest = (closing,) if value is None else (value, closing)
    size = len(first) + sum(map(len, rest))
    assert size <= BATCH_BYTES_MAX
    HEADER.pack_into(
        first, 0, base_offset, size - 12, leader_epoch, MAGIC, 0, CONTROL_BIT, 0,
        timestamp_ms, timestamp_ms, -1, -1, base_sequence, 1,
    )  # fmt: skip
    seal_spread(first, *rest)
    return SpreadBatch(parse_header(first), (first, *rest))


def decode_batch(batch: RecordBatch, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> list[StoredRecord]:
    """Returns the records of a batch in offset order; none for a control batch. The caller checks the CRC
    (`verify_batch`).

    If the topic uses log-append time, every record has the batch's timestamp. Header names that are not UTF-8 are read
    with replacement characters, as the Java client does.

    Raises `InvalidBatch` if the bytes do not hold what the header promises, `TooLarge` if the records decompress to
    more than `decompressed_bytes_max` bytes.
    """
    return stored_records(decode_columns(batch, decompressed_bytes_max=decompressed_bytes_max))


def decode_columns(batch: RecordBatch, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Columns:
    """Decodes a batch into columns, one list per field, and creates no record objects. Raises `InvalidBatch` if the
    bytes do not hold what the header promises, `TooLarge` if the records decompress to more than
    `decompressed_bytes_max` bytes."""
    header = batch.header
    if header.is_control:
        return Columns([], [], [], [], [])
    check_batch(batch)
    records = decompress(header.compression, batch.data[HEADER_BYTES:], bytes_max=decompressed_bytes_max)
    return decode_part(records, header, header.record_count)


def check_batch(batch: RecordBatch) -> None:
    """Checks the header of a batch before its records are decoded. Raises `InvalidBatch` if a length, an offset or a
    timestamp in it is wrong."""
    header = batch.header
    check_header(header)
    if header.size != len(batch.data):
        raise InvalidBatch(f"the header says {header.size} bytes, and there are {len(batch.data)}")
    if header.base_offset < 0 or header.next_offset > OFFSET_MAX:
        raise InvalidBatch(f"offsets {header.base_offset} to {header.last_offset} are out of range")
    if max(abs(header.base_timestamp), abs(header.max_timestamp)) > TIMESTAMP_MS_MAX:
        raise InvalidBatch(f"timestamps {header.base_timestamp} to {header.max_timestamp} are out of range")


def decode_stored(records: bytes, header: BatchHeader) -> list[StoredRecord]:
    """Returns the records of a batch from their decompressed bytes. The header has passed `check_batch`."""
    return stored_records(decode_part(records, header, header.record_count))


def stored_records(columns: Columns) -> list[StoredRecord]:
    """Returns one record per row of the columns."""
    return list(map(_stored_record, zip(*columns, strict=True)))


def decode_part(records: bytes, header: BatchHeader, count: int, delta_min: int = 0) -> Columns:
    """Decodes `count` consecutive records of a batch; `delta_min` is the smallest offset delta that the first may have.
    Raises `InvalidBatch`."""
    try:
        columns = decode_records(records, header, count, delta_min)
    except IndexError:
        raise InvalidBatch(f"the batch at offset {header.base_offset} ends within a record") from None
    if header.is_log_append_time:
        return columns._replace(timestamps_ms=[header.max_timestamp] * count)
    return columns
