"""Record batches to Arrow: the columns of Spark's Kafka source, from the raw bytes of a fetch.

`record_vectors` finds all keys and values at once. They are not copied one by one either: an Arrow array laid over the
original bytes, with the gaps between values as elements of their own, is gathered by one `take` of its even elements.
Only requested columns are built; headers are not even parsed otherwise.

A small fetch, where numpy's fixed costs exceed the work, is decoded record by record, with the same result. This module
and `record_vectors` alone need numpy and pyarrow (the `spark` extra).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.model.batch_codec import DECOMPRESSED_BYTES_MAX, check_batch, decode_stored
from tidelog.model.batch_header import HEADER_BYTES, RecordBatch, check_crc, iter_batches
from tidelog.model.compression import decompress
from tidelog.model.errors import InvalidBatch, InvalidRequest, TooLarge
from tidelog.model.ids import OFFSET_MAX
from tidelog.model.ports import Buffer
from tidelog.model.record_decoder import decode_headers
from tidelog.model.record_vectors import Fields, Ints, RecordSpan, read_vectors
from tidelog.model.records import Header, StoredRecord

ARROW_BYTES_MAX = 2**31 - 1
"""Largest number of bytes that the 32-bit offsets of Arrow's `binary` type, which Spark requires, can address."""

VECTORISED_RECORDS_MIN = 128
"""Number of records from which on the numpy decoder is used. At about this number both decoders take 150 us."""

_TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))),
}


def arrow_schema(columns: Sequence[str] | None = None, *, include_headers: bool = False) -> pa.Schema:
    """Returns the schema of Spark's Kafka source: all fields nullable, in Spark's order or in that of `columns`.

    Raises `InvalidRequest` for an unknown column, or for no columns.
    """
    if columns is None:
        columns = [name for name in _TYPES if include_headers or name != "headers"]
    unknown = [name for name in columns if name not in _TYPES]
    if unknown or not columns:
        raise InvalidRequest(f"columns {unknown or 'none'}: choose from {', '.join(_TYPES)}")
    return pa.schema([pa.field(name, _TYPES[name]) for name in columns])


def decode_to_arrow(
    buffer: Buffer,
    topic: str,
    partition: int,
    *,
    columns: Sequence[str] | None = None,
    include_headers: bool = False,
    start: int | None = None,
    end: int | None = None,
    decompressed_bytes_max: int = ARROW_BYTES_MAX,
) -> pa.RecordBatch:
    """Returns the records with `start` <= offset < `end` of a fetched `buffer` as one Arrow record batch.

    `buffer` holds whole batches of one partition; a last one that is cut short is left out, and so are control batches.
    Every CRC is checked. A record without headers has null in `headers`, and `timestampType` is 1 for log-append time,
    as in Spark's Kafka source. The result shares no memory with `buffer`.

    Raises `InvalidRequest` for an unknown column, `InvalidBatch` for bytes that are no sound batch, `TooLarge` if
    records decompress to more than `decompressed_bytes_max` bytes in all, or those of one batch to more than
    `DECOMPRESSED_BYTES_MAX`.
    """
    schema = arrow_schema(columns, include_headers=include_headers)
    bounds = _Bounds(0 if start is None else start, OFFSET_MAX if end is None else end)
    data, spans = _open_batches(buffer, bounds, decompressed_bytes_max)
    if sum(span.header.record_count for span in spans) < VECTORISED_RECORDS_MIN:
        rows = _decode_one_by_one(data, spans, bounds)
    else:
        rows = _decode_together(data, spans, bounds)
    arrays = [_column(rows, name, topic, partition) for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class _Bounds(NamedTuple):
    start: int
    end: int


@dataclass(frozen=True)
class _Rows:
    """Decoded records within the requested offsets. Keys, values and headers are functions, called only if the column
    is requested."""

    offsets: list[int] | Ints
    timestamps_ms: list[int] | Ints
    timestamp_types: list[int] | Ints
    keys: Callable[[], pa.Array]
    values: Callable[[], pa.Array]
    headers: Callable[[], pa.Array]


def _column(rows: _Rows, name: str, topic: str, partition: int) -> pa.Array:
    match name:
        case "key":
            return rows.keys()
        case "value":
            return rows.values()
        case "topic":
            return pa.repeat(_joined([topic.encode()]).view(pa.string())[0], len(rows.offsets))
        case "partition":
            return _laid_over(np.full(len(rows.offsets), partition, np.int32), _TYPES[name])
        case "offset":
            return _laid_over(np.asarray(rows.offsets, np.int64), _TYPES[name])
        case "timestamp":
            return _laid_over(np.asarray(rows.timestamps_ms, np.int64) * 1000, _TYPES[name])
        case "timestampType":
            return _laid_over(np.asarray(rows.timestamp_types, np.int32), _TYPES[name])
        case _:
            return rows.headers()


def _laid_over(numbers: npt.NDArray[Any], kind: pa.DataType, nulls: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Returns an Arrow array that shares the memory of the numbers. It avoids `pa.array` and `pa.scalar`: they import
    pandas if it is installed, which takes longer than the decoding in a new Spark process."""
    validity = None if nulls is None or not nulls.any() else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    return pa.Array.from_buffers(kind, len(numbers), [validity, pa.py_buffer(numbers)])


def _open_batches(buffer: Buffer, bounds: _Bounds, bytes_max: int) -> tuple[Buffer, list[RecordSpan]]:
    """Returns the bytes that hold the records of all batches with offsets within `bounds`, and the span of each batch
    in them. The bytes are `buffer` itself if no batch is compressed, else a copy."""
    spans: list[RecordSpan] = []
    batches: list[RecordBatch] = []
    position = 0
    for batch in iter_batches(buffer):
        header = batch.header
        if not header.is_control:
            check_batch(batch)
            if header.base_offset < bounds.end and header.next_offset > bounds.start:
                check_crc(header, batch.data)
                batches.append(batch)
                spans.append(RecordSpan(header, position + HEADER_BYTES, position + header.size))
        position += header.size
    if any(batch.header.compression for batch in batches):
        return _decompressed(batches, min(bytes_max, ARROW_BYTES_MAX))
    if position > ARROW_BYTES_MAX:
        raise TooLarge(f"{position} bytes of batches at once: decode at most {ARROW_BYTES_MAX}")
    return buffer, spans


def _decompressed(batches: Sequence[RecordBatch], bytes_max: int) -> tuple[bytes, list[RecordSpan]]:
    parts: list[bytes] = []
    spans: list[RecordSpan] = []
    position = 0
    for batch in batches:
        bound = min(DECOMPRESSED_BYTES_MAX, bytes_max - position)
        parts.append(decompress(batch.header.compression, batch.data[HEADER_BYTES:], bytes_max=bound))
        spans.append(RecordSpan(batch.header, position, position + len(parts[-1])))
        position = spans[-1].end
        if position > bytes_max:
            raise TooLarge(f"the records decompress to more than {bytes_max} bytes: decode fewer batches at once")
    return b"".join(parts), spans


# -- a handful of records --------------------------------------------------------------------------------------------


def _decode_one_by_one(data: Buffer, spans: Sequence[RecordSpan], bounds: _Bounds) -> _Rows:
    records: list[StoredRecord] = []
    types: list[int] = []
    for span in spans:
        decoded = decode_stored(bytes(data[span.start : span.end]), span.header)
        kept = [record for record in decoded if bounds.start <= record.offset < bounds.end]
        records += kept
        types += [int(span.header.is_log_append_time)] * len(kept)
    return _Rows(
        offsets=[record.offset for record in records],
        timestamps_ms=[record.timestamp_ms for record in records],
        timestamp_types=types,
        keys=lambda: _joined([record.key for record in records]),
        values=lambda: _joined([record.value for record in records]),
        headers=lambda: pa.array([record.headers or None for record in records], _TYPES["headers"]),
    )


def _joined(contents: Sequence[bytes | None]) -> pa.Array:
    data = b"".join(content or b"" for content in contents)
    sizes = np.array([-1 if content is None else len(content) for content in contents], np.int64)
    ends = np.cumsum(np.maximum(sizes, 0))
    return _gather(data, Fields(ends - np.maximum(sizes, 0), sizes), np.arange(len(sizes)))


# -- many records ----------------------------------------------------------------------------------------------------


def _decode_together(data: Buffer, spans: Sequence[RecordSpan], bounds: _Bounds) -> _Rows:
    vectors = read_vectors(data, spans)
    kept = np.flatnonzero((vectors.offsets >= bounds.start) & (vectors.offsets < bounds.end))
    return _Rows(
        offsets=vectors.offsets[kept],
        timestamps_ms=vectors.timestamps_ms[kept],
        timestamp_types=vectors.timestamp_types[kept],
        keys=lambda: _gather(data, vectors.keys, kept),
        values=lambda: _gather(data, vectors.values, kept),
        headers=lambda: _headers(data, vectors.headers[kept], vectors.ends[kept]),
    )


def _gather(data: Buffer, fields: Fields, kept: Ints) -> pa.Array:
    """Returns the bytes of the kept fields. Lays an Arrow array over `data` in which fields and the gaps between them
    alternate, and takes its even elements."""
    starts, sizes = fields.starts[kept], fields.sizes[kept]
    count = len(starts)
    nulls = sizes < 0
    if nulls.all():
        return pa.nulls(count, pa.binary())
    borders = np.empty(2 * count + 1, np.int32)
    borders[0:-1:2] = starts
    borders[1::2] = starts + np.maximum(sizes, 0)
    borders[-1] = borders[-2]
    interleaved = pa.BinaryArray.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(borders), pa.py_buffer(data)])
    return interleaved.take(_laid_over(np.arange(0, 2 * count, 2), pa.int64(), nulls))


def _headers(data: Buffer, starts: Ints, ends: Ints) -> pa.Array:
    """Returns one list of headers per record, null if a record has none."""
    rows: list[tuple[Header, ...] | None] = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        if start + 1 == end:
            rows.append(None)
            continue
        try:
            headers, size = decode_headers(bytes(data[start:end]), 0)
        except IndexError:
            raise InvalidBatch("a record ends within its headers") from None
        if size != end - start:
            raise InvalidBatch("a record's length is not the sum of its parts")
        rows.append(headers)
    return pa.array(rows, _TYPES["headers"])
