"""Records as clients of plain HTTP see them: opened batches, as JSON objects, with keys and values in one of the forms.

Shared by the read that leaves no state (`http.records`) and by the reads of REST consumers, wherever those live.
Bounded in what they open: each batch's decompressed size, and other requests get their turn between two batches.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec import Raw, Struct

from tidelog.broker.partitions.partition_handle import FetchedBatches, ReadHandle
from tidelog.model.batch_codec import decode_batch
from tidelog.model.batch_header import RecordBatch, iter_batches
from tidelog.model.errors import FormatMismatch, InvalidBatch, TooLarge
from tidelog.model.lost_ranges import LOST_TOLD_MAX
from tidelog.model.ports import Buffer
from tidelog.model.records import RecordForm, StoredRecord

RECORD_OVERHEAD_BYTES: Final = 32
"""What a record counts towards `max_bytes` beside its key, value and headers."""
_NULL: Final = Raw(b"null")
_ANY: Final = msgspec.json.Decoder(Raw)


class HeaderShown(Struct, frozen=True):
    """A record header; the value is base64, or null."""

    key: str
    value: bytes | None


class RecordShown(Struct, frozen=True):
    """A stored record. `key` and `value` are in the form that `Accept` asks for; `timestamp` is in ms, -1 is none."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Raw
    value: Raw
    headers: list[HeaderShown]


async def read_records(
    partition: ReadHandle, offset: int, bytes_max: int, decoded_bytes_max: int, *, lost_max: int = LOST_TOLD_MAX
) -> tuple[FetchedBatches, list[StoredRecord]]:
    """The records from `offset` on, up to `bytes_max` but at least one. Steps over batches that have none to show:
    control batches, and what compaction emptied; and over up to `lost_max` ranges that were given up. Raises as
    `ReadHandle.read`, or `FormatMismatch` for a batch that cannot be opened, if it is the first."""
    lost: tuple[tuple[int, int], ...] = ()
    while True:
        fetched = await partition.read(offset, bytes_max=bytes_max)
        lost = (*lost, *fetched.lost)
        fetched = replace(fetched, lost=lost)
        records: list[StoredRecord] = []
        size = 0
        for batch in iter_batches(fetched.data):
            try:
                decoded = _open(batch, decoded_bytes_max)
            except FormatMismatch:
                if records:
                    return fetched, records
                raise
            for record in decoded:
                if record.offset < offset:
                    continue
                size += size_of(record)
                if records and size > bytes_max:
                    return fetched, records
                records.append(record)
            await asyncio.sleep(0)
        if records or fetched.next_offset <= offset or len(lost) >= lost_max:
            return fetched, records
        offset = fetched.next_offset


def _open(batch: RecordBatch, decoded_bytes_max: int) -> list[StoredRecord]:
    """The records of a stored batch. `FormatMismatch`, saying where to go on, if it has none that can be shown."""
    try:
        return decode_batch(batch, decompressed_bytes_max=decoded_bytes_max)
    except (InvalidBatch, TooLarge) as error:
        raise FormatMismatch(
            f"the records from offset {batch.header.base_offset} on cannot be opened ({error.message}); "
            f"read them as raw batches, or go on at offset {batch.header.next_offset}"
        ) from None


def size_of(record: StoredRecord) -> int:
    """What a record counts towards `max_bytes`."""
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"") + headers


def show(topic: str, partition: int, record: StoredRecord, form: RecordForm) -> RecordShown:
    """A record in one of the forms. `FormatMismatch`, naming its offset, if it is not JSON, or UTF-8, and should be."""
    written = _WRITERS[form]
    return RecordShown(
        topic,
        partition,
        record.offset,
        record.timestamp_ms,
        written(record.key, "key", record.offset),
        written(record.value, "value", record.offset),
        [HeaderShown(name, value) for name, value in record.headers],
    )


def is_json(data: Buffer) -> bool:
    """True if stored bytes are one JSON value that can stand inside a JSON answer."""
    try:
        text = bytes(data)
        if not text.isascii():
            text.decode()
        _ANY.decode(text)
    except (UnicodeDecodeError, RecursionError, msgspec.DecodeError):
        return False
    return True


def _as_base64(data: bytes | None, _field: str, _offset: int) -> Raw:
    return _NULL if data is None else Raw(b'"%b"' % b64encode(data))


def _as_json(data: bytes | None, field: str, offset: int) -> Raw:
    if data is None:
        return _NULL
    if not is_json(data):
        raise _mismatch(field, offset, "JSON")
    return Raw(data)


def _as_text(data: bytes | None, field: str, offset: int) -> Raw:
    if data is None:
        return _NULL
    try:
        return Raw(msgspec.json.encode(data.decode()))
    except UnicodeDecodeError:
        raise _mismatch(field, offset, "UTF-8") from None


def _mismatch(field: str, offset: int, wanted: str) -> FormatMismatch:
    return FormatMismatch(
        f"the {field} of the record at offset {offset} is not {wanted}; read it with Accept: "
        "application/vnd.kafka.binary.v2+json"
    )


_WRITERS: Final[Mapping[RecordForm, Callable[[bytes | None, str, int], Raw]]] = MappingProxyType(
    {"binary": _as_base64, "json": _as_json, "text": _as_text}
)
