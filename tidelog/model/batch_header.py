"""The header of Kafka's RecordBatch v2. Brokers check and patch these 61 bytes, and never parse the records behind
them.

So a broker's work is per batch, not per record. A batch consists of the same bytes on the wire, in a log file and in a
client (big endian):

     0 base_offset         int64 | patched by the leader; not covered by the CRC
     8 batch_length        int32 | bytes that follow this field, so a batch has 12 more
    12 leader_epoch        int32 | patched by the leader; not covered by the CRC
    16 magic               int8  | 2
    17 crc                 uint32  CRC32C of everything from byte 21 on
    21 attributes          int16   bits 0-2 codec, 3 log-append time, 4 transactional, 5 control, 6 delete horizon
    23 last_offset_delta   int32   last_offset - base_offset
    27 base_timestamp      int64   ms since the epoch, of the first record; -1: none
    35 max_timestamp       int64   ms; of all records if bit 3 is set
    43 producer_id         int64   -1: not idempotent
    51 producer_epoch      int16
    53 base_sequence       int32
    57 record_count        int32   fewer than last_offset_delta + 1 only in a compacted batch
    61 records                     see `batch_codec`; one compressed block if a codec is set

Because base_offset and leader_epoch lie outside the CRC, a leader appends a batch to its log without touching the
checksum that the producer computed: the bytes stay verified end to end. The two stamps that do lie inside
(`stamp_append_time`, `stamp_producer`) compute it anew. All patches are made in the one buffer that the request was
received into, and show in every view of it.

Follows `org.apache.kafka.common.record.DefaultRecordBatch`.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c
from msgspec import Struct

from tidelog.model.errors import CorruptBatch, InvalidBatch, InvalidRequest, TooLarge, UnprocessableBody
from tidelog.model.ports import Buffer

HEADER_BYTES = 61
MAGIC = 2
HEADER = struct.Struct(">qiibIhiqqqhii")

TIMESTAMP_MS_MAX = 4_500_000_000_000_000
"""Largest valid timestamp, in the year 144,000. Base and delta of a record may each be that large, and their sum in
microseconds, the unit of Arrow and Spark, still fits an int64."""
TIMESTAMP_DELTA_MS_MAX = TIMESTAMP_MS_MAX + 1
"""Largest timestamp delta in ms: from -1, which means no timestamp, to the largest timestamp."""

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20

_LENGTH_OVERHEAD = 12  # base_offset and batch_length themselves
_CRC_POSITION = 17
_CRC_START = 21
_PLACE = struct.Struct(">qii")  # base_offset, batch_length, leader_epoch
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
_PRODUCER = struct.Struct(">qhi")


class Compression(enum.IntEnum):
    """The codec of a batch's records, as in the low three bits of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        """Kafka's name of the codec, as in `compression.type`."""
        return self.name.lower()

    @classmethod
    def from_name(cls, name: str) -> Compression:
        """Returns the codec that Kafka calls `name`. Raises `InvalidRequest` if there is none."""
        for codec in cls:
            if codec.label == name:
                return codec
        raise InvalidRequest(f"unknown compression {name!r}: use one of {', '.join(codec.label for codec in cls)}")


_CODECS = tuple(Compression)


class BatchHeader(NamedTuple):
    """The fixed-size header of a RecordBatch v2, in wire order. Its values are unchecked: see `verify_batch`."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Size of the whole batch in bytes."""
        return self.batch_length + _LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset after the batch. It does not depend on whether compaction removed the last records."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> Compression:
        """Codec of the records. Raises `InvalidBatch` if the attributes name none; in a checked header they always
        do."""
        codec = self.attributes & CODEC_MASK
        if codec >= len(_CODECS):
            raise InvalidBatch(f"unknown compression codec {codec}")
        return _CODECS[codec]

    @property
    def is_control(self) -> bool:
        """True for a control batch. It occupies an offset, and consumers never see its record."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_log_append_time(self) -> bool:
        """True if `max_timestamp` is the broker's time of the append, which is then the timestamp of every record."""
        return bool(self.attributes & LOG_APPEND_TIME_BIT)


class RecordBatch(Struct, frozen=True):
    """A record batch: its header, and a view of exactly its bytes (writable if it came from `split_batches`)."""

    header: BatchHeader
    data: memoryview

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The bytes of the batch as a tuple of one buffer; a `SpreadBatch` has several."""
        return (self.data,)


class SpreadBatch(Struct, frozen=True):
    """A batch whose bytes lie in several buffers, one behind the other; the header is in the first."""

    header: BatchHeader
    buffers: tuple[Buffer, ...]


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Parses the 61-byte header at `position` without checking its values. Raises `InvalidBatch` if there are fewer
    bytes."""
    try:
        return BatchHeader._make(HEADER.unpack_from(buffer, position))
    except struct.error:
        left = max(0, len(buffer) - position)
        raise InvalidBatch(f"a record batch has at least {HEADER_BYTES} bytes, and {left} are left") from None


def check_header(header: BatchHeader) -> None:
    """Checks what holds for every valid batch, including compacted and control batches. Raises `InvalidBatch`."""
    if header.magic != MAGIC:
        raise InvalidBatch(f"magic is {header.magic}: only RecordBatch v2 (magic 2, Kafka 0.11 and later) is accepted")
    if header.batch_length < HEADER_BYTES - _LENGTH_OVERHEAD:
        raise InvalidBatch(f"batch_length {header.batch_length} is shorter than the header")
    if header.attributes & CODEC_MASK >= len(_CODECS):
        raise InvalidBatch(f"unknown compression codec {header.attributes & CODEC_MASK}")
    if header.last_offset_delta < 0 or not 0 <= header.record_count <= header.last_offset_delta + 1:
        raise InvalidBatch(
            f"record_count {header.record_count} does not fit last_offset_delta {header.last_offset_delta}"
        )


def verify_batch(data: Buffer) -> BatchHeader:
    """Checks that `data` is exactly one sound batch (magic, lengths, codec, counts, CRC32C) and returns its header. The
    records are not parsed.

    The CRC does not cover the offset and the leader epoch; a log protects them by other means. Raises `InvalidBatch`.
    """
    header = parse_header(data)
    check_header(header)
    if header.size != len(data):
        raise InvalidBatch(f"the header says {header.size} bytes, and there are {len(data)}")
    check_crc(header, memoryview(data))
    return header


def check_crc(header: BatchHeader, data: memoryview) -> None:
    """Compares the batch's bytes with its CRC32C. Raises `CorruptBatch` if they differ."""
    crc = crc32c(data[_CRC_START:])
    if crc != header.crc:
        raise CorruptBatch(f"CRC32C is {crc:#010x}, the header says {header.crc:#010x}: the batch is damaged")


def split_batches(buffer: Buffer, *, batch_bytes_max: int, batches_max: int = 10_000) -> list[RecordBatch]:
    """Splits the body of a produce request into its batches and checks them all before any is appended.

    The views are writable: a read-only `buffer` is copied once, a writable one is shared and will be patched. Base
    offset and leader epoch are still the sender's, and to be ignored.

    Raises `UnprocessableBody` if there is no batch, `TooLarge` for a batch over `batch_bytes_max` bytes or more than
    `batches_max` batches, `InvalidBatch` for anything that is not sound or that only a broker may write.
    """
    view = memoryview(buffer)
    if view.readonly:
        view = memoryview(bytearray(view))
    if not view:
        raise UnprocessableBody("no record batches: send at least one")
    batches: list[RecordBatch] = []
    position = 0
    while position < len(view):
        if len(batches) == batches_max:
            raise TooLarge(f"more than {batches_max} record batches: send them in several requests")
        try:
            batch = _take_produced(view, position, batch_bytes_max)
        except InvalidBatch as error:
            raise type(error)(f"record batch {len(batches)}, at byte {position}: {error.message}") from None
        batches.append(batch)
        position += len(batch.data)
    return batches


def iter_batches(buffer: Buffer) -> Iterator[RecordBatch]:
    """Yields the batches of a fetch response, found by their headers. A last batch that is cut short is left out.

    Computes no CRC: `verify_batch(batch.data)` does. Raises `InvalidBatch` at an impossible header, since the batches
    after it cannot be found.
    """
    view = memoryview(buffer)
    position = 0
    while position + HEADER_BYTES <= len(view):
        header = parse_header(view, position)
        check_header(header)
        end = position + header.size
        if end > len(view):
            return
        yield RecordBatch(header, view[position:end])
        position = end


def assign_offsets(batch: RecordBatch, base_offset: int, leader_epoch: int) -> RecordBatch:
    """Writes the batch's base offset and leader epoch in place. The CRC stays valid, since it does not cover them."""
    header = batch.header
    _PLACE.pack_into(batch.data, 0, base_offset, header.batch_length, leader_epoch)
    placed = BatchHeader(base_offset, header.batch_length, leader_epoch, *header[3:])
    return RecordBatch(placed, batch.data)


def stamp_append_time(batch: RecordBatch, timestamp_ms: int) -> RecordBatch:
    """Marks all records as appended at `timestamp_ms` (`message.timestamp.type=LogAppendTime`), in place, with a new
    CRC. The producer's timestamps stay in the records but are ignored."""
    attributes = batch.header.attributes | LOG_APPEND_TIME_BIT
    _ATTRIBUTES.pack_into(batch.data, 21, attributes)
    _MAX_TIMESTAMP.pack_into(batch.data, 35, timestamp_ms)
    return _resealed(batch.header._replace(attributes=attributes, max_timestamp=timestamp_ms), batch.data)


def stamp_producer(batch: RecordBatch, producer_id: int, producer_epoch: int, base_sequence: int) -> RecordBatch:
    """Writes the producer id, producer epoch and base sequence into the batch, in place, with a new CRC."""
    crc = number(batch.data, producer_id, producer_epoch, base_sequence)
    numbers = {"producer_id": producer_id, "producer_epoch": producer_epoch, "base_sequence": base_sequence}
    return RecordBatch(batch.header._replace(crc=crc, **numbers), batch.data)


def number(data: bytearray | memoryview, producer_id: int, producer_epoch: int, base_sequence: int) -> int:
    """Writes an idempotent producer's id, epoch and base sequence, and a new CRC, into an encoded batch. Returns the
    CRC."""
    _PRODUCER.pack_into(data, 43, producer_id, producer_epoch, base_sequence)
    return seal(data)


def seal(data: bytearray | memoryview) -> int:
    """Computes the CRC32C of an encoded batch, writes it into the header and returns it."""
    crc: int = crc32c(memoryview(data)[_CRC_START:])
    _CRC.pack_into(data, _CRC_POSITION, crc)
    return crc


def seal_spread(first: bytearray, *rest: Buffer) -> None:
    """Computes the CRC32C of an encoded batch that lies in several buffers, and writes it into the first one, the
    header."""
    crc: int = crc32c(memoryview(first)[_CRC_START:])
    for buffer in rest:
        crc = crc32c(buffer, crc)
    _CRC.pack_into(first, _CRC_POSITION, crc)


def _resealed(header: BatchHeader, data: memoryview) -> RecordBatch:
    return RecordBatch(header._replace(crc=seal(data)), data)


def _take_produced(view: memoryview, position: int, batch_bytes_max: int) -> RecordBatch:
    header = parse_header(view, position)
    check_header(header)
    size = header.size
    end = position + size
    if end > len(view):
        raise InvalidBatch(f"the header says {size} bytes, and {len(view) - position} are left")
    if size > batch_bytes_max:
        raise TooLarge(f"a record batch of {size} bytes is over max.message.bytes ({batch_bytes_max})")
    _check_producible(header)
    data = view[position:end]
    check_crc(header, data)
    return RecordBatch(header, data)


def _check_producible(header: BatchHeader) -> None:
    """Checks the rules for batches from producers, which are stricter than those for batches in a log. Raises
    `InvalidBatch`."""
    if header.attributes & ~CODEC_MASK:
        raise InvalidBatch(_why_not_producible(header))
    if header.record_count < 1 or header.record_count != header.last_offset_delta + 1:
        raise InvalidBatch(
            f"record_count {header.record_count} is not last_offset_delta {header.last_offset_delta} + 1, or is 0"
        )
    for timestamp in (header.base_timestamp, header.max_timestamp):
        if not -1 <= timestamp <= TIMESTAMP_MS_MAX:
            raise InvalidBatch(f"timestamp {timestamp} is out of range: use milliseconds since 1970, or -1 for none")
    if header.producer_id < -1:
        raise InvalidBatch(f"producer_id {header.producer_id} is negative: use -1 for none")
    if header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise InvalidBatch("a producer_id needs a producer_epoch and a base_sequence of 0 or more")


def _why_not_producible(header: BatchHeader) -> str:
    if header.is_control:
        return "control batches are written by brokers only"
    if header.is_transactional:
        return "transactions are not supported: clear the transactional bit"
    if header.is_log_append_time:
        return "the log-append-time bit is set by brokers only: send the records' own timestamps"
    return f"unknown attribute bits {header.attributes:#06x}"
