"""Reads of records as JSON: fetches batches, decompresses them and writes their records as JSON objects.

Shared by the stateless read (`http.records`) and by the reads of REST consumers. Bounded: each batch has a maximum
decompressed size, and only as many of its records are decoded as the answer has room for. The work is done in slices
(`model.steps`), so that the event loop serves other requests in between, also within a batch or a long value.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from msgspec import structs

from tidelog.broker.partitions.early_reads import EarlyBatch
from tidelog.broker.partitions.partition_handle import FetchedBatches, ReadHandle
from tidelog.broker.routing.json_records import RecordShown, encode, show, show_long, size_of
from tidelog.broker.runtime.heavy_work import HeavyWork
from tidelog.model.batch_codec import check_batch
from tidelog.model.batch_header import HEADER_BYTES, RecordBatch, iter_batches
from tidelog.model.compression import unpack
from tidelog.model.errors import FormatMismatch, InvalidBatch, TooLarge
from tidelog.model.lost_ranges import LOST_TOLD_MAX
from tidelog.model.ports import Buffer
from tidelog.model.record_slices import LongRecordError, record_slices
from tidelog.model.records import RecordForm, StoredRecord
from tidelog.model.steps import AWAY_BYTES, SLICE_BYTES, Meter, Steps


@dataclass(frozen=True, slots=True)
class ReadTerms:
    """The parameters of one read as JSON: the partition, the record format, and its bounds."""

    topic: str
    partition: int
    form: RecordForm
    bytes_max: int
    decoded_bytes_max: int
    """Maximum bytes that a batch may decompress to."""
    record_bytes_max: int
    """Maximum bytes of one record."""


class ShownRecords:
    """Records written as JSON, and the offset to read on at."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        """The records as JSON text in pieces: the items of an array and their commas, without the brackets."""
        self.size = 0
        """Bytes that the records count towards the `max_bytes` of the read (`size_of`)."""
        self.next_offset = -1
        """The offset after the last record; -1 if there is none."""
        self.mismatch = ""
        """The message of the `FormatMismatch` if the next record cannot be written in the requested format; else empty.
        Only the text is kept, since the error's traceback would keep the record's batch in memory.
        """

    def __bool__(self) -> bool:
        return bool(self.pieces)

    def add(self, pieces: Sequence[bytes], size: int, next_offset: int) -> None:
        """Appends records that were written as JSON `pieces`. `size` is the bytes that they count towards `max_bytes`,
        `next_offset` the offset after the last one.
        """
        if self.pieces:
            self.pieces.append(b",")
        self.pieces += pieces
        self.size += size
        self.next_offset = next_offset


async def read_records(
    handle: ReadHandle, offset: int, terms: ReadTerms, work: HeavyWork, *, lost_max: int = LOST_TOLD_MAX
) -> tuple[FetchedBatches, ShownRecords]:
    """Returns the records from `offset` on as JSON, up to `bytes_max` but at least one. Skips control batches, batches
    that compaction emptied, and up to `lost_max` accepted losses (offset ranges that an operator declared lost). Raises
    `OffsetOutOfRange`, `DamagedBatch`, `LeaderNotAvailable`, `Overloaded`; `FormatMismatch` if the first batch cannot
    be decompressed or decoded.
    """
    lost: tuple[tuple[int, int], ...] = ()
    while True:
        fetched = await handle.read(offset, bytes_max=terms.bytes_max)
        lost = (*lost, *fetched.lost)
        fetched = structs.replace(fetched, lost=lost)
        shown = await work.do(show_batches(fetched.data, offset, terms))
        if shown or shown.mismatch or fetched.next_offset <= offset or len(lost) >= lost_max:
            return fetched, shown
        offset = fetched.next_offset
        await asyncio.sleep(0)


def array_of(pieces: Sequence[bytes]) -> bytes:
    """Returns a JSON array: `pieces` (its items and their commas) between brackets."""
    return b"".join((b"[", *pieces, b"]"))


def show_batches(data: Buffer, offset: int, terms: ReadTerms) -> Steps[ShownRecords]:
    """Decodes batches and writes their records from `offset` on as JSON, until `bytes_max` is reached. Raises
    `FormatMismatch` if the first batch cannot be decompressed or decoded.
    """
    shown, meter = ShownRecords(), Meter()
    for batch in iter_batches(data):
        try:
            if (yield from _show_batch(shown, meter, batch, offset, terms)):
                return shown
        except (InvalidBatch, TooLarge, LongRecordError) as error:
            if shown:
                return shown
            raise _unopened(batch, error) from None
    return shown


def show_early(shown: ShownRecords, batches: Sequence[EarlyBatch], terms: ReadTerms) -> Steps[list[tuple[int, int]]]:
    """Adds the records of released batches to those in `shown`, until `bytes_max` is reached. Returns the ranges of
    their offsets, each the first and the one behind the last. Raises `FormatMismatch` as `show_batches` does.
    """
    ranges, meter = list[tuple[int, int]](), Meter()
    for early in batches:
        try:
            is_full = yield from _show_batch(shown, meter, early.batch, early.start, terms)
        except (InvalidBatch, TooLarge, LongRecordError) as error:
            if shown:
                break
            raise _unopened(early.batch, error) from None
        if shown.next_offset > early.start:
            ranges.append((early.start, shown.next_offset))
        if is_full:
            break
    return ranges


def _show_batch(shown: ShownRecords, meter: Meter, batch: RecordBatch, offset: int, terms: ReadTerms) -> Steps[bool]:
    """Adds the records of one batch to `shown`. Returns True if `bytes_max` is reached or a record cannot be written.
    Raises `InvalidBatch`, `TooLarge` or `LongRecordError` if the batch cannot be decompressed or decoded.
    """
    if batch.header.is_control:
        return False
    check_batch(batch)
    opened = yield from _unpacked(batch, terms.decoded_bytes_max)
    parts = record_slices(opened, batch.header, record_bytes_max=terms.record_bytes_max, start_offset=offset)
    for records in parts:
        fitting, size = _fitting(shown, records, terms.bytes_max)
        if size > SLICE_BYTES:
            yield None
        if len(fitting) == 1 and size > SLICE_BYTES:
            yield from _show_long(shown, fitting[0], terms)
        elif fitting:
            _show_part(shown, fitting, size, terms)
        if shown.mismatch or len(fitting) < len(records):
            return True
        if meter.is_over(len(records), size):
            yield None
    return False


def _unpacked(batch: RecordBatch, bytes_max: int) -> Steps[memoryview]:
    """Returns the decompressed records of a batch. A large batch is decompressed outside the event loop."""
    codec, data = batch.header.compression, batch.data[HEADER_BYTES:]
    if not codec:
        return data
    if len(data) <= AWAY_BYTES:
        try:
            return unpack(codec, data, bytes_max=min(bytes_max, AWAY_BYTES))
        except TooLarge:
            if bytes_max <= AWAY_BYTES:
                raise
    opened: memoryview = yield partial(unpack, codec, data, bytes_max=bytes_max)
    return opened


def _fitting(shown: ShownRecords, records: list[StoredRecord], bytes_max: int) -> tuple[list[StoredRecord], int]:
    """Returns as many of the first records as fit into `bytes_max` besides those in `shown`, at least one if `shown` is
    empty; and the bytes that they count towards it.
    """
    room, taken = bytes_max - shown.size, 0
    for number, record in enumerate(records):
        size = size_of(record)
        if taken + size > room and (number or shown):
            return records[:number], taken
        taken += size
    return records, taken


def _show_part(shown: ShownRecords, records: list[StoredRecord], size: int, terms: ReadTerms) -> None:
    written: list[RecordShown] = []
    for record in records:
        try:
            written.append(show(terms.topic, terms.partition, record, terms.form))
        except FormatMismatch as error:
            shown.mismatch = error.message
            size = sum(map(size_of, records[: len(written)]))
            break
    if written:
        shown.add([encode(written)[1:-1]], size, written[-1].offset + 1)


def _show_long(shown: ShownRecords, record: StoredRecord, terms: ReadTerms) -> Steps[None]:
    try:
        pieces = yield from show_long(terms.topic, terms.partition, record, terms.form)
        shown.add(pieces, size_of(record), record.offset + 1)
    except FormatMismatch as error:
        shown.mismatch = error.message


def _unopened(batch: RecordBatch, error: InvalidBatch | TooLarge | LongRecordError) -> FormatMismatch:
    """Returns the error for a batch whose records cannot be shown; it names the offset to read on at."""
    if isinstance(error, LongRecordError):
        return FormatMismatch(
            f"{error.message}, more than http.record.bytes.max allows to be shown as JSON; read it as raw batches, "
            f"or go on at offset {error.offset + 1}"
        )
    return FormatMismatch(
        f"the records from offset {batch.header.base_offset} on cannot be opened ({error.message}); "
        f"read them as raw batches, or go on at offset {batch.header.next_offset}"
    )
