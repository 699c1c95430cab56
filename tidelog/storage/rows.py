"""Catalog rows: 128 bytes each, checksummed, one for every batch of a segment.

The catalog is a separate file, so that no single torn or rotten region destroys both a batch and its identity (CTRL's
crash-corruption disentanglement, FAST '18). One row is at once the batch's identity, the offset index, the time index,
the producer's last sequence, and, for Paxos logs, the acceptor's record.

A catalog consists of a HEADER, the checkpoint (LINEAGE and PRODUCER rows: leader epochs and producers' states of all
earlier segments), then body rows in the order of writing (BATCH, DELETE_RECORDS, MARK, LOST), and a SEAL when the
segment is rolled. In a Paxos journal a NAME row stands right before the BATCH row of an entry, and repeats the entry's
head, so that an entry that rots or is torn by a power cut is still known by name.

Every row has a `sequence`, its ordinal among all rows of the log: `first_sequence + slot` within a catalog. `durable`
is the sequence below which everything was known to be on disk when the row was written. A bad end beyond the highest
`durable` found may come from a crash; damage below it never does.

A truncation drops rows, and no sequence is used twice: later rows go to a new segment, or into a new catalog, with
sequences above all that were ever used. Epochs never decrease.

All body rows carry `base_offset`, `file_position` and `running_max_timestamp`, which never decrease, so that a catalog
can be searched by bisection whatever the kinds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from crc32c import crc32c
from xxhash import xxh3_128, xxh3_128_digest

from tidelog.model.batch_header import CONTROL_BIT, BatchHeader
from tidelog.model.errors import InvalidBatch
from tidelog.model.ids import PartitionId, TopicId
from tidelog.model.ports import Buffer
from tidelog.model.producers import BATCHES_REMEMBERED, SEQUENCES, ProducerState, SeenBatch
from tidelog.storage.slot_entries import NAME_BYTES_MAX, identity_of

ROW_BYTES = 128
MAGIC = 0x7D10
VERSION = 1
NO_TIMESTAMP = -1


class Kind(IntEnum):
    """The kind of a row in a catalog (the index file of a segment)."""

    HEADER = 1
    LINEAGE = 2
    PRODUCER = 3
    BATCH = 4
    DELETE_RECORDS = 5
    MARK = 6
    LOST = 7
    SEAL = 8
    NAME = 9


BODY_KINDS = frozenset({Kind.BATCH, Kind.DELETE_RECORDS, Kind.MARK, Kind.LOST, Kind.SEAL, Kind.NAME})

# All begin with magic, version, kind, epoch, sequence, durable, and end with the CRC.
# `<`: little endian without padding. The layouts are those of docs/data-files.md, byte for byte.
_BODY = struct.Struct("<HBBiQQ QQ qqqq 16s qihh Ii qI")
_HEADER = struct.Struct("<HBBiQQ q q 16s i I ? 59x")
_LINEAGE = struct.Struct("<HBBiQQ q 92x")
_PRODUCER = struct.Struct("<HBBiQQ qqq hHi" + "iq" * BATCHES_REMEMBERED + "8x")
_NAME = struct.Struct("<QQq16sqihh")
"""Layout of a NAME row's content, in the fields that otherwise only BATCH rows need."""
assert _NAME.size == NAME_BYTES_MAX
_CRC = struct.Struct("<I")
_BODY_BEFORE_CRC = struct.Struct(_BODY.format + "4x")
_SOUND = 0x48674BC7
"""The CRC-32C of any bytes that are followed by their own CRC-32C."""
_CHECKED = ROW_BYTES - _CRC.size
assert all(s.size == _CHECKED for s in (_BODY, _HEADER, _LINEAGE, _PRODUCER))


class Row(NamedTuple):
    """A body row of a catalog (any row but its header and its checkpoint), unpacked. `position` and `number` are the
    Paxos position and proposal number of a journal entry (`slot_entries`), or of the value that the batch came in
    (`commit.protocol=paxos`), if known; 0 elsewhere."""

    magic: int
    version: int
    kind: int
    epoch: int
    sequence: int
    durable: int
    position: int
    number: int
    base_offset: int
    file_position: int
    max_timestamp: int
    running_max_timestamp: int
    digest: bytes
    producer_id: int
    base_sequence: int
    producer_epoch: int
    attributes: int
    length: int
    last_offset_delta: int
    start_offset: int
    """The log start offset in force; in a DELETE_RECORDS row, the new one that it sets."""
    skipped: int
    """Number of offsets right before the batch that belong to no record, in Paxos logs."""

    @property
    def first_offset(self) -> int:
        """Returns the offset where the previous row's batch ends, before the skipped offsets."""
        return self.base_offset - self.skipped

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def end_position(self) -> int:
        return self.file_position + self.length


def name_of(row: Row) -> bytes:
    """Returns the content of a NAME row, padded with zeros."""
    return _NAME.pack(
        row.position, row.number, row.max_timestamp, row.digest, row.producer_id, row.base_sequence,
        row.producer_epoch, row.attributes,
    )  # fmt: skip


class HeaderRow(NamedTuple):
    """The first row of a catalog; `checkpoint_rows` rows of the checkpoint (LINEAGE and PRODUCER) follow it."""

    epoch: int
    sequence: int
    durable: int
    base_offset: int
    log_start_offset: int
    checkpoint_rows: int
    has_checkpoint: bool
    """False in a catalog that had to be made again without the checkpoint, which then is read from an older segment."""


class Tail(NamedTuple):
    """The end of a log, where its next row goes: the values that a new row inherits from the rows before it."""

    sequence: int
    durable: int
    epoch: int
    offset: int
    file_position: int
    running_max_timestamp: int
    log_start_offset: int

    def behind(self, row: Row) -> Tail:
        """Returns this end moved behind the batch that `row` describes; the sequence stays."""
        return self._replace(
            epoch=row.epoch,
            offset=row.next_offset,
            file_position=row.end_position,
            running_max_timestamp=row.running_max_timestamp,
        )


class RowCodec:
    """Packs and unpacks the catalog rows of one log."""

    def __init__(self, identity: PartitionId) -> None:
        self._topic_id = bytes.fromhex(identity.topic_id)
        self._partition = identity.partition
        # The checksum is seeded with the log's identity, so a row of another partition does not parse: what a
        # misdirected write or a swapped file brings here is damage, and no evidence.
        self._seed = crc32c(self._topic_id + identity.partition.to_bytes(4, "little"))

    def seal_bytes(self, row: bytes) -> bytes:
        """Returns a packed row with its checksum appended."""
        return row + _CRC.pack(crc32c(row, self._seed))

    def is_sound(self, row: Buffer) -> bool:
        """Returns True if these are 128 bytes with this log's checksum, whatever their kind and place."""
        if len(row) != ROW_BYTES:
            return False
        view = memoryview(row)
        (crc,) = _CRC.unpack_from(view, _CHECKED)
        # A row of a newer version is no row here; `format` keeps this program from such data.
        return bool(crc == crc32c(view[:_CHECKED], self._seed)) and view[:3] == _SIGNATURE

    # -- body rows ------------------------------------------------------------------------------------------------

    def batch(
        self, tail: Tail, header: BatchHeader, buffers: Sequence[Buffer], identity: tuple[int, int] | None = None
    ) -> bytes:
        """Packs the row of a batch that is about to be written at `tail`. Offsets between the tail and the batch's
        first offset are recorded as skipped. `identity` is the batch's position and number in the Paxos log that it was
        agreed on in; without it, they are read from the batch if it is a journal entry, and are 0 otherwise."""
        # Clients choose timestamps, so a later batch may be older. The maximum so far never falls, and can be bisected.
        newest = max(tail.running_max_timestamp, header.max_timestamp)
        position, number = identity or (identity_of(header, buffers[0]) if header.attributes & CONTROL_BIT else (0, 0))
        digest = xxh3_128_digest(buffers[0]) if len(buffers) == 1 else _digest(buffers)
        return self.seal_bytes(
            _BODY.pack(
                MAGIC, VERSION, Kind.BATCH, header.leader_epoch, tail.sequence, tail.durable, position, number,
                header.base_offset, tail.file_position, header.max_timestamp, newest, digest,
                header.producer_id, header.base_sequence, header.producer_epoch, header.attributes,
                12 + header.batch_length, header.last_offset_delta, tail.log_start_offset,
                header.base_offset - tail.offset,
            )
        )  # fmt: skip

    def note(self, kind: Kind, tail: Tail, *, start_offset: int, offsets: int = 0, skipped: int = 0) -> bytes:
        """Packs a body row without a batch: DELETE_RECORDS, MARK, SEAL, or LOST. `offsets` is the number of lost
        offsets, and `skipped` of those right before them that belong to no record."""
        return self.seal_bytes(
            _BODY.pack(
                MAGIC, VERSION, kind, tail.epoch, tail.sequence, tail.durable, 0, 0, tail.offset, tail.file_position,
                NO_TIMESTAMP, tail.running_max_timestamp, bytes(16), -1, -1, -1, 0, 0, offsets - 1, start_offset,
                skipped,
            )
        )  # fmt: skip

    def name(self, tail: Tail, content: bytes) -> bytes:
        """Packs a NAME row with up to `NAME_BYTES_MAX` of content."""
        position, number, timestamp, digest, *rest = _NAME.unpack(content.ljust(_NAME.size, b"\0"))
        producer_id, base_sequence, producer_epoch, attributes = rest
        return self.seal_bytes(
            _BODY.pack(
                MAGIC, VERSION, Kind.NAME, tail.epoch, tail.sequence, tail.durable, position, number, tail.offset,
                tail.file_position, timestamp, tail.running_max_timestamp, digest, producer_id, base_sequence,
                producer_epoch, attributes, 0, -1, tail.log_start_offset, 0,
            )
        )  # fmt: skip

    def pack(self, row: Row) -> bytes:
        """Packs a body row with the values it has."""
        return self.seal_bytes(_BODY.pack(*row))

    def body(self, raw: Buffer) -> Row | None:
        """Unpacks a body row (any but a catalog's header and checkpoint rows); None if it is damaged, or no body
        row."""
        return next(self.bodies(raw), None)

    def bodies(self, raw: Buffer, sequence: int | None = None) -> Iterator[Row | None]:
        """Unpacks consecutive body rows; None for each that is damaged, or no body row. `sequence` is that of the first
        row, if it is known; then None also for each row with another sequence than its place has: it is a leftover of
        before a truncation, or a misdirected write."""
        view, seed, position, make = memoryview(raw), self._seed, 0, tuple.__new__
        for fields in _BODY_BEFORE_CRC.iter_unpack(view[: len(view) - len(view) % ROW_BYTES]):
            is_row = fields[0] == MAGIC and fields[1] == VERSION and fields[2] in BODY_KINDS
            is_here = sequence is None or fields[4] == sequence + position // ROW_BYTES
            if is_row and is_here and crc32c(view[position : position + ROW_BYTES], seed) == _SOUND:
                yield make(Row, fields)
            else:
                yield None
            position += ROW_BYTES

    # -- header and checkpoint ------------------------------------------------------------------------------------

    def header(self, tail: Tail, checkpoint_rows: int, *, has_checkpoint: bool = True) -> bytes:
        return self.seal_bytes(
            _HEADER.pack(
                MAGIC, VERSION, Kind.HEADER, tail.epoch, tail.sequence, tail.durable, tail.offset,
                tail.log_start_offset, self._topic_id, self._partition, checkpoint_rows, has_checkpoint,
            )
        )  # fmt: skip

    def parse_header(self, raw: Buffer) -> HeaderRow | None:
        if not self.is_sound(raw):
            return None
        _, _, kind, epoch, sequence, durable, base, start, _, _, rows, has_checkpoint = _HEADER.unpack_from(raw)
        if kind != Kind.HEADER:
            return None
        return HeaderRow(epoch, sequence, durable, base, start, rows, has_checkpoint)

    @staticmethod
    def owner(raw: Buffer) -> PartitionId | None:
        """Returns the partition that this row, a catalog's header, names as its own; None if it is no sound header."""
        if len(raw) != ROW_BYTES:
            return None
        fields = _HEADER.unpack_from(raw)
        # The row says itself whose it is, and its checksum, seeded with that, proves it.
        identity = PartitionId(TopicId(fields[8].hex()), fields[9])
        return identity if fields[9] >= 0 and RowCodec(identity).parse_header(raw) is not None else None

    def checkpoint(
        self, tail: Tail, lineage: Iterable[tuple[int, int]], producers: Iterable[tuple[int, ProducerState]]
    ) -> list[bytes]:
        """Packs a segment's first rows: its header, then the lineage (leader epochs) and the producers' states of all
        segments before."""
        bodies: list[tuple[Kind, int, tuple[int, ...]]] = [(Kind.LINEAGE, epoch, (start,)) for epoch, start in lineage]
        bodies += [(Kind.PRODUCER, tail.epoch, _producer_fields(pid, state)) for pid, state in producers]
        rows = [self.header(tail, len(bodies))]
        for slot, (kind, epoch, fields) in enumerate(bodies, start=1):
            layout = _LINEAGE if kind is Kind.LINEAGE else _PRODUCER
            # A checkpoint row has a sequence as well, so that the slot of each row in the catalog is its sequence less
            # the first.
            row = layout.pack(MAGIC, VERSION, kind, epoch, tail.sequence + slot, tail.durable, *fields)
            rows.append(self.seal_bytes(row))
        return rows

    def parse_checkpoint(self, raw: Buffer) -> tuple[int, int] | tuple[int, ProducerState] | None:
        """Unpacks a checkpoint row: (leader epoch, first offset), or (producer id, state); None if it is damaged."""
        if not self.is_sound(raw):
            return None
        kind = raw[3]
        if kind == Kind.LINEAGE:
            _, _, _, epoch, _, _, start = _LINEAGE.unpack_from(raw)
            return (epoch, start)
        if kind == Kind.PRODUCER:
            return _parse_producer(raw)
        return None

    # -- producers on their way to another replica ------------------------------------------------------------------

    def pack_producers(self, producers: Iterable[tuple[int, ProducerState]]) -> bytes:
        """Packs producers' states as PRODUCER rows for another replica of the partition, whose log begins with them."""
        rows = (
            _PRODUCER.pack(MAGIC, VERSION, Kind.PRODUCER, 0, 0, 0, *_producer_fields(producer_id, state))
            for producer_id, state in producers
        )
        return b"".join(map(self.seal_bytes, rows))

    def parse_producers(self, raw: Buffer) -> list[tuple[int, ProducerState]]:
        """Unpacks the rows of `pack_producers`. Raises `InvalidBatch` if any of them is damaged, or belongs to another
        partition."""
        states: list[tuple[int, ProducerState]] = []
        for position in range(0, len(raw), ROW_BYTES):
            row = raw[position : position + ROW_BYTES]
            # All or none. What came over the network is damaged, or another partition's, as soon as one row is.
            if len(row) < ROW_BYTES or not self.is_sound(row) or row[3] != Kind.PRODUCER:
                raise InvalidBatch(f"the state of a producer, {position} bytes into what a replica sent, is damaged")
            states.append(_parse_producer(row))
        return states


_SIGNATURE = MAGIC.to_bytes(2, "little") + bytes([VERSION])


def _producer_fields(producer_id: int, state: ProducerState) -> tuple[int, ...]:
    # The remembered batches are contiguous, so the last sequence and the counts give back every first sequence.
    trail = [number for seen in state.batches for number in (seen.record_count, seen.base_offset)]
    trail += [0] * (2 * BATCHES_REMEMBERED - len(trail))
    count = len(state.batches)
    return (producer_id, state.seen_ms, state.run_records, state.epoch, count, state.next_sequence, *trail)


def _parse_producer(raw: Buffer) -> tuple[int, ProducerState]:
    fields = _PRODUCER.unpack_from(raw)
    producer_id, seen_ms, run_records, epoch, count, next_sequence = fields[6:12]
    trail = fields[12 : 12 + 2 * count]
    batches: list[SeenBatch] = []
    for records, base_offset in reversed(list(zip(trail[::2], trail[1::2], strict=True))):
        # Backwards from the newest: sequences wrap at 2^31, and counts never do.
        next_sequence = (next_sequence - records) % SEQUENCES
        batches.append(SeenBatch(next_sequence, records, base_offset))
    return producer_id, ProducerState(epoch, tuple(reversed(batches)), run_records, seen_ms)


def _digest(buffers: Sequence[Buffer]) -> bytes:
    """Returns the XXH3-128 digest of all these bytes in order."""
    digest = xxh3_128()
    for buffer in buffers:
        digest.update(buffer)
    return digest.digest()
