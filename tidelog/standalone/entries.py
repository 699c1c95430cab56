"""The entries of a log, one by one, as one replica has learned them: of one that runs, or in a stopped one's files.

What is not learned is not shown, for it may never be chosen; nor is anything behind it, for whether a value counts
depends on all before it (`replication.paxos.apply`).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tidelog.controller.records import VoterAssigned, decode_record, encode_record
from tidelog.replication.paxos.apply import Verdict, fold
from tidelog.replication.paxos.state import Prefix, Slot

USERS = b"\x00"
OWN = b"\x01"
"""First byte of an APPEND's payload in a log by itself: somebody's entry, or the log's own note about a voter."""


class LogEntry(msgspec.Struct, frozen=True):
    """An entry of the log, as one replica knows it."""

    position: int
    kind: str
    number: int
    """Under which the value was last accepted where this was read; 0 if it only was learned there."""
    birth: int
    offset: int
    count: int
    is_void: bool
    """Chosen, but older than what stands before it, or behind a gap: it counts for nothing."""
    payload_bytes: int
    """-1 if the payload is not to be had where this was read."""


def users_entry(payload: bytes) -> bytes:
    """Encodes somebody's entry for the log."""
    return USERS + payload


def own_entry(record: VoterAssigned) -> bytes:
    """Encodes the note that a disk got an id."""
    return OWN + encode_record(record)


def split_entry(payload: bytes) -> VoterAssigned | bytes:
    """Decodes an entry: the log's own note, or somebody's bytes."""
    if payload[:1] != OWN:
        return payload[1:]
    record = decode_record(payload[1:])
    assert isinstance(record, VoterAssigned), "nothing else is noted"
    return record


class LogView:
    """The learned prefix. `slots` may grow behind it: `extend` takes in what has become known."""

    def __init__(self, floor: Prefix, slots: Mapping[int, Slot]) -> None:
        self.begin = floor.position
        self._slots = slots
        self._prefix = floor
        self._void: set[int] = set()
        """The positions whose values are void: only a change of leaders leaves some, a window of them at most."""

    @property
    def end(self) -> int:
        """The first position that is not learned here."""
        return self._prefix.position

    def extend(self, floor: Prefix) -> None:
        """Takes in what is learned, as far as everything is, of a log that begins at `floor` now."""
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
        """Returns the slot of a position from `begin` to before `end`."""
        assert self.begin <= position < self.end
        return self._slots[position]

    def entry(self, position: int, payload: bytes | None) -> LogEntry:
        """Describes the entry there; `payload` is None if it cannot be read."""
        slot = self.slot(position)
        value = slot.value
        is_void = position in self._void
        size = len(payload) if payload is not None else (-1 if value.digest else 0)
        return LogEntry(
            position, value.kind.name.lower(), slot.number, value.birth, value.base_offset, value.count, is_void, size
        )
