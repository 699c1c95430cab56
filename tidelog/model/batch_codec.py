"""Records to batch bytes and back: what producers, consumers and the JSON listener do, and a broker's log never does.

A record inside a batch, after `batch_header`'s 61 bytes (all integers zigzag varints but `attributes`):

    length | attributes int8, 0 | timestamp delta | offset delta
           | key length, -1 is null | key | value length, -1 is null | value
           | header count | { name length | name, UTF-8 | value length, -1 is null | value }

Encoding is flat: every record adds its parts to one list, one `join` makes the batch. Lengths and deltas come from a
table of ready varints, so that a small record costs table look-ups and no calls. Decoding is one loop with the
one- and two-byte varints read in place. Both loops are long on purpose: a call per field would halve them.

A decoder trusts nothing. Every length, count and delta is held against the bytes that are there, so a batch that
lies gives `InvalidBatch`, whoever made its CRC right.

Follows `org.apache.kafka.common.record.DefaultRecord` and `DefaultRecordBatch`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import partial
from operator import itemgetter

from tidelog.model.batch_header import (
    HEADER,
    HEADER_BYTES,
    MAGIC,
    TIMESTAMP_MS_MAX,
    BatchHeader,
    Compression,
    RecordBatch,
    check_header,
    seal,
)
from tidelog.model.compression import compress, decompress
from tidelog.model.errors import InvalidBatch, InvalidRequest, TooLarge, UnprocessableBody
from tidelog.model.ids import OFFSET_MAX
from tidelog.model.records import Header, Record, StoredRecord
from tidelog.model.varint import VARINT_TABLE_SIZE, VARINTS, decode_folded, decode_varint, encode_varint

DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
"""How many bytes a batch's records may decompress to if the caller sets no bound."""

BATCH_BYTES_MAX = 2**31 - 1
"""What `batch_length`, an int32, can express."""

RECORD_BYTES_MIN = 7
"""A record without key, value and headers: seven one-byte fields."""

_NULL = encode_varint(-1)
_NULL_FOLDED = 1
_VARINT_SIZES = tuple(map(len, VARINTS))
_HEADERS = itemgetter(3)
_PLAIN = itemgetter(0, 1, 2)
_stored_record = partial(tuple.__new__, StoredRecord)

RecordLike = Record | tuple[int, bytes | None, bytes | None] | tuple[int, bytes | None, bytes | None, Sequence[Header]]


def encode_batch(
    records: Sequence[RecordLike],
    *,
    compression: Compression = Compression.NONE,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """One sound batch of all `records`, each `(timestamp_ms, key, value)` or with headers as a fourth item.

    The result may be patched in place (`assign_offsets` and the stamps).

    Raises `UnprocessableBody` if there are no records, `InvalidRequest` if a number does not fit its field,
    `TooLarge` over 2 GiB.
    """
    if not records:
        raise UnprocessableBody("no records: a batch has at least one")
    base_timestamp = records[0][0]
    _check_timestamp(base_timestamp)
    try:
        parts, max_timestamp = _plain_parts(records, base_timestamp)
    except (IndexError, ValueError):  # beyond the varint table; headers, or a mixture of both kinds
        parts, max_timestamp = _general_parts(records, base_timestamp)
    _check_timestamp(max_timestamp)
    if compression:
        parts = [parts[0], compress(compression, b"".join(parts[1:]))]
    batch = bytearray().join(parts)
    if len(batch) > BATCH_BYTES_MAX:
        raise TooLarge(f"{len(records)} records make a batch of {len(batch)} bytes: send fewer at once")
    try:
        HEADER.pack_into(
            batch, 0, base_offset, len(batch) - 12, leader_epoch, MAGIC, 0, compression, len(records) - 1,
            base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, len(records),
        )  # fmt: skip
    except struct.error as error:
        raise InvalidRequest(f"a batch field is out of range: {error}") from None
    seal(batch)
    return batch


def _plain_parts(records: Sequence[RecordLike], base_timestamp: int) -> tuple[list[bytes], int]:
    """The parts of a batch without headers whose lengths and deltas are all in the varint table, and its largest
    timestamp. `IndexError` or `ValueError` where that does not hold."""
    varints, sizes, null = VARINTS, _VARINT_SIZES, _NULL
    parts = [bytes(HEADER_BYTES)]
    add = parts.extend
    max_timestamp = base_timestamp
    for index, (timestamp, key, value) in enumerate(_without_headers(records)):
        delta = timestamp - base_timestamp
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        elif delta < 0:
            raise IndexError
        if key is None:
            key_bytes, key_size, key_length = b"", 0, null
        else:
            key_bytes, key_size = key, len(key)
            key_length = varints[key_size]
        if value is None:
            value_bytes, value_size, value_length = b"", 0, null
        else:
            value_bytes, value_size = value, len(value)
            value_length = varints[value_size]
        size = 2 + sizes[delta] + sizes[index] + sizes[key_size] + key_size + sizes[value_size] + value_size
        add((
            varints[size], b"\0", varints[delta], varints[index], key_length, key_bytes, value_length, value_bytes, b"\0",
        ))  # fmt: skip
    return parts, max_timestamp


def _without_headers(records: Sequence[RecordLike]) -> Iterable[tuple[int, bytes | None, bytes | None]]:
    """The records as triples. `ValueError` (at once, or on unpacking a record of the other kind) if any has headers."""
    if len(records[0]) == 3:
        return records  # type: ignore[return-value]  # a longer one fails to unpack
    if any(map(_HEADERS, records)):
        raise ValueError
    return map(_PLAIN, records)


def _general_parts(records: Sequence[RecordLike], base_timestamp: int) -> tuple[list[bytes], int]:
    """As `_plain_parts`, for every record there can be."""
    parts = [bytes(HEADER_BYTES)]
    max_timestamp = base_timestamp
    for index, (timestamp, key, value, *rest) in enumerate(records):
        _check_timestamp(timestamp)
        max_timestamp = max(max_timestamp, timestamp)
        body = [b"\0", encode_varint(timestamp - base_timestamp), _varint(index), *_field(key), *_field(value)]
        headers = rest[0] if rest else ()
        body.append(_varint(len(headers)))
        for name, content in headers:
            body += _field(name.encode())
            body += _field(content)
        parts.append(_varint(sum(map(len, body))))
        parts += body
    return parts, max_timestamp


def _check_timestamp(timestamp: int) -> None:
    if not -1 <= timestamp <= TIMESTAMP_MS_MAX:
        raise InvalidRequest(f"timestamp {timestamp} is out of range: use milliseconds since 1970, or -1 for none")


def _varint(size: int) -> bytes:
    return VARINTS[size] if size < VARINT_TABLE_SIZE else encode_varint(size)


def _field(content: bytes | None) -> tuple[bytes, bytes]:
    return (_NULL, b"") if content is None else (_varint(len(content)), content)


def decode_batch(batch: RecordBatch, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> list[StoredRecord]:
    """All records of a batch, in offset order; none of a control batch. The CRC is the caller's (`verify_batch`).

    Where the topic keeps log-append time, every record has the batch's. Header names that are not UTF-8 are
    read with replacement characters, as the Java client does.

    Raises `InvalidBatch` if the bytes do not hold what the header promises, `TooLarge` if the records
    decompress to more than `decompressed_bytes_max` bytes.
    """
    header = batch.header
    if header.is_control:
        return []
    payload = records_of(batch, decompressed_bytes_max)
    try:
        rows = _decode_rows(payload, header)
    except IndexError:
        raise InvalidBatch(f"the batch at offset {header.base_offset} ends within a record") from None
    if header.is_log_append_time:
        timestamp = header.max_timestamp
        rows = [(offset, timestamp, key, value, headers) for offset, _, key, value, headers in rows]
    return list(map(_stored_record, rows))


def records_of(batch: RecordBatch, decompressed_bytes_max: int) -> bytes:
    """The records' bytes, decompressed, of a batch whose header makes sense. Errors as `decode_batch`."""
    header = batch.header
    check_header(header)
    if header.size != len(batch.data):
        raise InvalidBatch(f"the header says {header.size} bytes, and there are {len(batch.data)}")
    if not 0 <= header.base_offset <= OFFSET_MAX - header.last_offset_delta:
        raise InvalidBatch(f"offsets {header.base_offset} to {header.last_offset} are out of range")
    if max(abs(header.base_timestamp), abs(header.max_timestamp)) > TIMESTAMP_MS_MAX:
        raise InvalidBatch(f"timestamps {header.base_timestamp} to {header.max_timestamp} are out of range")
    payload = decompress(header.compression, batch.data[HEADER_BYTES:], bytes_max=decompressed_bytes_max)
    if header.record_count * RECORD_BYTES_MIN > len(payload):
        raise InvalidBatch(f"{header.record_count} records do not fit {len(payload)} bytes")
    return payload


_Row = tuple[int, int, bytes | None, bytes | None, tuple[Header, ...]]


def _decode_rows(data: bytes, header: BatchHeader) -> list[_Row]:  # noqa: C901, PLR0912, PLR0915 - a hot loop
    """The one loop. `IndexError` where the data ends too early.

    Each varint is read in place if it has one or two bytes. `folded` values keep their sign in bit 0: a length or an
    offset delta that has it is negative, so a lie, but for the lengths that mean null. `twice_end` is where the
    record must end, doubled, so that an odd (negative) record length can never be met.
    """
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    rows: list[_Row] = []
    add = rows.append
    position = folded_next = 0
    for _ in range(header.record_count):
        folded = data[position]
        position += 1
        if folded > 0x7F:
            high = data[position]
            if high > 0x7F:
                folded, position = decode_folded(data, position - 1)
            else:
                folded = folded & 0x7F | high << 7
                position += 1
        twice_end = position + position + folded

        folded = data[position + 1]  # the timestamp delta, after the attributes, which have no meaning yet
        position += 2
        if folded > 0x7F:
            high = data[position]
            if high > 0x7F:
                folded, position = decode_folded(data, position - 1)
            else:
                folded = folded & 0x7F | high << 7
                position += 1
        timestamp = base_timestamp + ((folded >> 1) ^ -(folded & 1))

        folded = data[position]
        position += 1
        if folded > 0x7F:
            high = data[position]
            if high > 0x7F:
                folded, position = decode_folded(data, position - 1)
            else:
                folded = folded & 0x7F | high << 7
                position += 1
        if folded != folded_next:  # compaction leaves gaps, but never goes back
            if folded < folded_next or folded & 1:
                raise InvalidBatch(f"a record's offset is not after the one before it, from offset {base_offset} on")
            folded_next = folded
        folded_next += 2

        key = value = None
        folded_length = data[position]
        position += 1
        if folded_length != _NULL_FOLDED:
            if folded_length > 0x7F:
                folded_length, position = decode_folded(data, position - 1)
            if folded_length & 1:
                raise InvalidBatch("a key of negative length")
            end = position + (folded_length >> 1)
            key = data[position:end]
            position = end

        folded_length = data[position]
        position += 1
        if folded_length != _NULL_FOLDED:
            if folded_length > 0x7F:
                high = data[position]
                if high > 0x7F:
                    folded_length, position = decode_folded(data, position - 1)
                else:
                    folded_length = folded_length & 0x7F | high << 7
                    position += 1
            if folded_length & 1:
                raise InvalidBatch("a value of negative length")
            end = position + (folded_length >> 1)
            value = data[position:end]
            position = end

        headers: tuple[Header, ...] = ()
        if data[position]:
            headers, position = _decode_headers(data, position)
        else:
            position += 1
        if position + position != twice_end:
            raise InvalidBatch("a record's length is not the sum of its parts")
        add((base_offset + (folded >> 1), timestamp, key, value, headers))
    if position != len(data):
        raise InvalidBatch(f"{len(data) - position} bytes after the last record")
    if folded_next > 2 * (header.last_offset_delta + 1):
        raise InvalidBatch("a record's offset is after the batch's last_offset_delta")
    return rows


def _decode_headers(data: bytes, position: int) -> tuple[tuple[Header, ...], int]:
    count, position = decode_varint(data, position)
    if not 0 <= count <= len(data) - position:
        raise InvalidBatch(f"{count} headers in a record")
    headers: list[Header] = []
    for _ in range(count):
        name, position = _decode_field(data, position)
        if name is None:
            raise InvalidBatch("a header without a name")
        content, position = _decode_field(data, position)
        headers.append((name.decode(errors="replace"), content))
    return tuple(headers), position


def _decode_field(data: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = decode_varint(data, position)
    if size == -1:
        return None, position
    if not 0 <= size <= len(data) - position:
        raise InvalidBatch(f"a header field of {size} bytes, where {len(data) - position} are left")
    return data[position : position + size], position + size
