"""The bytes of a log as text or JSON: `tidelog log dump` (Kafka's `DumpLogSegments`).

Catalog rows are shown as they lie in the files, checked by nothing but their checksum; nothing is repaired, skipped or
truncated. Batches are shown as the catalog rows list them, with the contents of their own headers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from tidelog.model.batch_header import CONTROL_BIT, parse_header
from tidelog.model.ids import PartitionId
from tidelog.model.ports import File, Files
from tidelog.model.producers import ProducerState
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.rows import ROW_BYTES, Kind, Row, RowCodec, name_of
from tidelog.storage.segment import Damage
from tidelog.storage.slot_entries import EntryKind, decode_entry

Fields = dict[str, int | str | bool | list[int] | list[list[int]] | list[str]]
"""The fields of a dumped row or batch, as a JSON object has them."""


class Dumped(NamedTuple):
    """A dumped row or batch: its file, position in the file, kind and contents. `as_json` gives them as one JSON
    object."""

    file: str
    position: int
    kind: str
    fields: Fields

    def as_json(self) -> Fields:
        return {"file": self.file, "position": self.position, "kind": self.kind, **self.fields}

    def __str__(self) -> str:
        facts = " ".join(f"{name}={value}" for name, value in self.fields.items())
        return f"{self.file} @{self.position} {self.kind} {facts}".rstrip()


def dump_rows(files: Files, directory: str, identity: PartitionId) -> Iterator[Dumped]:
    """Yields every row of every catalog (index file) in a log's directory. Raises `OSError` if a catalog cannot be
    opened."""
    codec = RowCodec(identity)
    for name in files.list(directory):
        # Every catalog that is there, also one that the loader would set aside or remove: a dump shows files, not a
        # log.
        if name.endswith(".catalog"):
            with closing(files.open(f"{directory}/{name}")) as file:
                yield from _dump_catalog(codec, file, name)


def _dump_catalog(codec: RowCodec, file: File, name: str) -> Iterator[Dumped]:
    # Row by row, at the positions where rows belong: a damaged row costs itself, and does not shift those behind it.
    for position in range(0, file.size(), ROW_BYTES):
        try:
            raw = file.pread(ROW_BYTES, position)
        except OSError as error:
            yield Dumped(name, position, "UNREADABLE", {"reason": str(error)})
        else:
            yield Dumped(name, position, *_describe_row(codec, raw))


def _describe_row(codec: RowCodec, raw: bytes) -> tuple[str, Fields]:
    body = codec.body(raw)
    if body is not None:
        return Kind(body.kind).name, _body_fields(body)
    # A row is what its checksum and kind say, wherever it lies: a header in the middle is shown as one.
    header = codec.parse_header(raw)
    if header is not None:
        return Kind.HEADER.name, dict(header._asdict())
    item = codec.parse_checkpoint(raw)
    if item is None:
        return "DAMAGED", {"bytes": raw.hex()}
    key, value = item
    if isinstance(value, ProducerState):
        return Kind.PRODUCER.name, _producer_fields(key, value)
    return Kind.LINEAGE.name, {"epoch": key, "start_offset": value}


def _producer_fields(producer_id: int, state: ProducerState) -> Fields:
    return {
        "producer_id": producer_id,
        "producer_epoch": state.epoch,
        "run_records": state.run_records,
        "seen_ms": state.seen_ms,
        "batches": [list(seen) for seen in state.batches],
    }


def _body_fields(row: Row) -> Fields:
    fields: Fields = {
        "epoch": row.epoch,
        "sequence": row.sequence,
        "durable": row.durable,
        "base_offset": row.base_offset,
        "next_offset": row.next_offset,
        "log_start_offset": row.start_offset,
        "file_position": row.file_position,
    }
    if row.kind == Kind.NAME:
        # The lengths at its start tell zeros of the content from zeros behind it.
        fields["name"] = name_of(row).rstrip(b"\0").hex()
    elif row.kind == Kind.BATCH:
        fields |= {
            "length": row.length,
            "max_timestamp": row.max_timestamp,
            "running_max_timestamp": row.running_max_timestamp,
            "producer_id": row.producer_id,
            "producer_epoch": row.producer_epoch,
            "base_sequence": row.base_sequence,
            "attributes": row.attributes,
            "digest": row.digest.hex(),
        }
        # Of other batches, position and number are those of a Paxos value, and the top bit of the number is a flag.
        if row.attributes & CONTROL_BIT:
            fields |= {"position": row.position, "number": row.number}
    return fields


def dump_batches(log: PartitionLog) -> Iterator[tuple[Dumped, bytes]]:
    """Yields every batch of a log with its bytes, which can be passed to `decode_batch`; damage with no bytes. Of a
    Paxos journal's entries (`slot_entries`), whose kind is not BATCH, the bytes are the payload."""
    offset = log.log_start_offset
    for part in log.parts(offset):
        if isinstance(part, Damage):
            yield _dump_damage("", part), b""
            continue
        name = part.log_path.rpartition("/")[2]
        for entry in part.entries(offset):
            if isinstance(entry, Damage):
                yield _dump_damage(name, entry), b""
                continue
            # One batch at a time, so that a damaged one is told apart from those beside it.
            extent = part.read(entry.base_offset, 1, log.log_end_offset)
            if extent.data:
                yield _dump_any(name, entry.file_position, extent.data)
            elif extent.damage is not None:
                yield _dump_damage(name, extent.damage), b""


def _dump_any(name: str, position: int, data: bytes) -> tuple[Dumped, bytes]:
    entry = decode_entry(data)
    if entry is None:
        return _dump_batch(name, position, data), data
    head, payload = entry
    fields: Fields = {"base_offset": parse_header(data).base_offset, "position": head.position}
    if head.kind is EntryKind.FLOOR:
        fields |= {"floor": head.content.hex()}
    else:
        fields |= {"number": head.number, "identity": head.content.hex(), "payload_digest": head.digest.hex()}
    if payload is not None:
        fields["payload_bytes"] = len(payload)
    return Dumped(name, position, head.kind.name, fields), payload or b""


def _dump_batch(name: str, position: int, data: bytes) -> Dumped:
    header = parse_header(data)
    fields: Fields = {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "record_count": header.record_count,
        "leader_epoch": header.leader_epoch,
        "bytes": header.size,
        "compression": header.compression.label,
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "log_append_time": header.is_log_append_time,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "crc": header.crc,
    }
    return Dumped(name, position, "BATCH", fields)


def _dump_damage(name: str, damage: Damage) -> Dumped:
    return Dumped(name, -1, "DAMAGE", {"start": damage.start, "end": damage.end, "reason": damage.reason})
