"""The part of a slot that a disk keeps beside position, number and payload; and what an engine starts from."""

from __future__ import annotations

import msgspec

from tidelog.model.errors import DamagedBatch
from tidelog.replication.paxos.state import Kind, Metadata, Prefix, Slot, StoredLog, Value
from tidelog.storage.slot_store import StoredSlots


class Identity(msgspec.Struct, frozen=True, array_like=True):
    """The stored part of a slot, but for its position, its number and its payload."""

    value: Value
    learned: bool


encode_identity = msgspec.msgpack.Encoder().encode


def stored_log(stored: StoredSlots, metadata: Metadata) -> StoredLog:
    """Returns what the engine starts from. An identity that cannot be read leaves position and number: faulty."""
    floor = Prefix() if stored.floor is None else msgspec.msgpack.decode(stored.floor[1], type=Prefix)
    slots: list[Slot] = []
    for slot in stored.slots:
        if slot.identity is None:
            slots.append(Slot(slot.position, slot.number, Value(Kind.UNKNOWN), faulty=True))
            continue
        try:
            identity = msgspec.msgpack.decode(slot.identity, type=Identity)
        except msgspec.DecodeError as error:
            raise DamagedBatch(f"position {slot.position} of a Paxos log cannot be understood: {error}") from error
        slots.append(Slot(slot.position, slot.number, identity.value, identity.learned, slot.is_faulty))
    return StoredLog(metadata, floor, tuple(slots))
