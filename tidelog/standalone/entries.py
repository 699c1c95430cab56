"""The entries of a standalone log as one replica has learned them (Paxos: knows that they are chosen): of a running
replica, or from a stopped one's files.

An entry that is not learned is not shown, for it may never be chosen; nor is any behind it, for whether a value counts
depends on all values before it (`replication.paxos.apply`).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tidelog.controller.records import VoterAssigned, decode_record, encode_record
from tidelog.replication.paxos.apply import Verdict, fold
from tidelog.replication.paxos.state import Prefix, Slot

USERS = b"\x00"
OWN = b"\x01"
"""First byte of an APPEND's payload that is a `VoterAssigned` record of the log itself; users' entries begin with
`USERS`."""


class LogEntry(msgspec.Struct, frozen=True):
    """An entry of a standalone log, as one replica knows it."""

    position: int
    kind: str
    number: int
    """Proposal number under which the replica last accepted the value; 0 if it has only learned it."""
    birth: int
    """Proposal number under which the value was first proposed; 0 for a NOP, which has none."""
    offset: int
    count: int
    is_void: bool
    """True if the value is chosen, but has no effect: its coordinator is older than that of a value before it; or it
    requires that all values before it, back to some position, have an effect and are of its own coordinator, and they
    are not."""
    payload_bytes: int
    """Size of the payload in bytes; -1 if the replica does not have it."""


def users_entry(payload: bytes) -> bytes:
    """Encodes a user's entry for the log."""
    return USERS + payload


def own_entry(record: VoterAssigned) -> bytes:
    """Encodes the log's own record that a disk was assigned a voter id."""
    return OWN + encode_record(record)


def split_entry(payload: bytes) -> VoterAssigned | bytes:
    """Decodes a payload: the log's own record that a disk was assigned a voter id, or the bytes of a user's entry."""
    if payload[:1] != OWN:
        return payload[1:]
    record = decode_record(payload[1:])
    assert isinstance(record, VoterAssigned), "nothing else is noted"
    return record


class LogView:
    """The learned entries of a replica. `slots` may grow: `extend` adds what has been learned since."""

    def __init__(self, floor: Prefix, slots: Mapping[int, Slot]) -> None:
        self.begin = floor.position
        self._slots = slots
        self._prefix = floor
        self._void: set[int] = set()
        """The positions of values that are chosen but have no effect. Only a change of leaders leaves such values, at
        most as many as a leader may have in flight."""

    @property
    def end(self) -> int:
        """The first position that this replica has not learned."""
        return self._prefix.position

    def extend(self, floor: Prefix) -> None:
        """Adds the values learned since, up to the first one that is not; the log begins at `floor` now."""
        if floor.position > self.begin:
            self.begin = floor.position
            self._void = {position for position in self._void if position >= floor.position}
        if floor.position > self._prefix.position:
            self._prefix = floor
        while (slot := self._slots.get(self._prefix.position)) is not None and slot.learned:
            self._prefix, verdict = fold(self._prefix, slot.value)
            if verdict is Verdict.VOID:
                self._void.add(slot.position)

    def slot(self, position: int) -> Slot:
        """Returns the slot of a position between `begin` and `end`."""
        assert self.begin <= position < self.end
        return self._slots[position]

    def entry(self, position: int, payload: bytes | None) -> LogEntry:
        """Returns the entry at a position; `payload` is None if it cannot be read."""
        slot = self.slot(position)
        value = slot.value
        is_void = position in self._void
        size = len(payload) if payload is not None else (-1 if value.digest else 0)
        return LogEntry(
            position, value.kind.name.lower(), slot.number, value.birth, value.base_offset, value.count, is_void, size
        )
