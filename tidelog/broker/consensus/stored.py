"""The encoding of a slot's identity, which a disk keeps beside position, number, payload and digest; and the state that
an engine starts from.

It is 30 bytes, little endian: kind u8 | 1 if it is learned u8 | birth u64 | base_offset i64 | count u32 | begin u64. So
it fits into a catalog row beside the digest (`slot_entries`), and a value keeps its name when its entry is lost.

At the first feature level it is msgpack: an array of the whole value, as a map, and of whether it is learned. That is
longer, and does not fit there.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from tidelog.model.errors import DamagedBatch
from tidelog.model.levels import LEVEL_MIN
from tidelog.replication.paxos.state import Kind, Metadata, Prefix, Slot, StoredLog, Value
from tidelog.storage.slot_store import StoredSlots

# 30 bytes fit into a catalog row beside the digest: so a value keeps its name when its entry is lost.
_FIELDS = struct.Struct("<BBQqIQ")
PACKED_LEVEL: Final = 2
"""The feature level from which on identities are packed into 30 bytes."""
# No kind has this number: so the first byte of an identity tells the two forms apart.
_FIRST_LEVEL_BYTE = b"\x92"
"""First byte of an identity at the first feature level: a msgpack array of two elements."""


class Identity(msgspec.Struct, frozen=True):
    """The stored part of a slot besides its position, its ballot number and its payload."""

    value: Value
    learned: bool


class _FirstLevelIdentity(Identity, frozen=True, array_like=True):
    """The stored part of a slot, as it is encoded at the first feature level."""


_decode_first_level = msgspec.msgpack.Decoder(_FirstLevelIdentity).decode


def encode_identity(identity: Identity, level: int) -> bytes:
    """Encodes an identity, without the digest that is stored beside it, as disks have it at this feature level."""
    value = identity.value
    if level < PACKED_LEVEL:
        return msgspec.msgpack.encode(_FirstLevelIdentity(value, identity.learned))
    return _FIELDS.pack(
        value.kind.value, identity.learned, value.birth, value.base_offset, value.count, value.begin
    )  # fmt: skip


def decode_identity(content: bytes, digest: bytes) -> Identity:
    """Decodes an identity of any feature level. Raises `ValueError` if it is invalid."""
    # After an upgrade a journal has identities of both forms; the first byte tells which one this is.
    if is_of_first_level(content):
        packed = _decode_first_level(content)
        return Identity(packed.value, packed.learned)
    try:
        kind, learned, birth, base_offset, count, begin = _FIELDS.unpack(content)
    except struct.error as error:
        raise ValueError(str(error)) from error
    return Identity(Value(Kind(kind), birth, base_offset, count, digest, begin), bool(learned))


def is_of_first_level(content: bytes) -> bool:
    """Returns True if an identity was encoded at the first feature level."""
    return content[:1] == _FIRST_LEVEL_BYTE


def journal_level(stored: StoredSlots) -> int:
    """Returns the feature level at which the newest readable slot was written; the first level if there is none."""
    newest = next((slot.identity for slot in reversed(stored.slots) if slot.identity), None)
    return LEVEL_MIN if newest is None or is_of_first_level(newest) else PACKED_LEVEL


def stored_log(stored: StoredSlots, metadata: Metadata) -> StoredLog:
    """Returns the state that an engine starts from. A slot without a readable identity keeps position and number, and
    is faulty. Raises `DamagedBatch` for an invalid identity."""
    floor = Prefix() if stored.floor is None else msgspec.msgpack.decode(stored.floor[1], type=Prefix)
    slots: list[Slot] = []
    for slot in stored.slots:
        # Even the name is lost. The slot must not be left out: that would say that nothing was accepted here.
        if slot.identity is None:
            slots.append(Slot(slot.position, slot.number, Value(Kind.UNKNOWN), faulty=True))
            continue
        try:
            identity = decode_identity(slot.identity, slot.digest)
        except ValueError as error:
            raise DamagedBatch(f"position {slot.position} of a Paxos log cannot be understood: {error}") from error
        slots.append(Slot(slot.position, slot.number, identity.value, identity.learned, slot.is_faulty))
    return StoredLog(metadata, floor, tuple(slots))
