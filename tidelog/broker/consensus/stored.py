"""The part of a slot that a disk keeps beside position, number, payload and its digest; and what an engine starts from.

It is 30 bytes, little endian: kind u8 | 1 if it is learned u8 | birth u64 | base_offset i64 | count u32 | begin u64. So
it has room in a catalog row beside the digest (`slot_entries`), and a value keeps its name when its entry is lost.
"""

from __future__ import annotations

import struct

import msgspec

from tidelog.model.errors import DamagedBatch
from tidelog.replication.paxos.state import Kind, Metadata, Prefix, Slot, StoredLog, Value
from tidelog.storage.slot_store import StoredSlots

_FIELDS = struct.Struct("<BBQqIQ")


class Identity(msgspec.Struct, frozen=True):
    """The stored part of a slot, but for its position, its number and its payload."""

    value: Value
    learned: bool


def encode_identity(identity: Identity) -> bytes:
    """Packs all but the digest, which is stored beside it."""
    value = identity.value
    return _FIELDS.pack(
        value.kind.value, identity.learned, value.birth, value.base_offset, value.count, value.begin
    )  # fmt: skip


def decode_identity(content: bytes, digest: bytes) -> Identity:
    """Raises `ValueError` if it is none."""
    try:
        kind, learned, birth, base_offset, count, begin = _FIELDS.unpack(content)
    except struct.error as error:
        raise ValueError(str(error)) from error
    return Identity(Value(Kind(kind), birth, base_offset, count, digest, begin), bool(learned))


def stored_log(stored: StoredSlots, metadata: Metadata) -> StoredLog:
    """Returns what the engine starts from. An identity that cannot be read leaves position and number: faulty."""
    floor = Prefix() if stored.floor is None else msgspec.msgpack.decode(stored.floor[1], type=Prefix)
    slots: list[Slot] = []
    for slot in stored.slots:
        if slot.identity is None:
            slots.append(Slot(slot.position, slot.number, Value(Kind.UNKNOWN), faulty=True))
            continue
        try:
            identity = decode_identity(slot.identity, slot.digest)
        except ValueError as error:
            raise DamagedBatch(f"position {slot.position} of a Paxos log cannot be understood: {error}") from error
        slots.append(Slot(slot.position, slot.number, identity.value, identity.learned, slot.is_faulty))
    return StoredLog(metadata, floor, tuple(slots))
