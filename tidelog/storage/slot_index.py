"""The index of a Paxos journal (slot store): which entries each slot needs, and what it costs to give up a segment.

For each position the newest entry counts. Its payload may lie in an earlier one, so payloads are remembered by position
and digest for as long as the journal holds them, also those of values that were replaced: the value that is chosen in
the end may be one that this replica held before.

An entry is *live* if it is the newest of a slot, has the payload that a slot needs, or is the newest floor. Others are
removed with their segment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from tidelog.storage.slot_entries import FLOOR_NUMBER, EntryKind, Head


class StoredPayload(NamedTuple):
    """A payload that was sound when it was last read: the journal offset of its entry (entries are counted, not bytes),
    and its size in bytes."""

    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class SlotEntry:
    """The newest state of a slot, as its newest journal entry has it."""

    number: int
    digest: bytes
    """Digest of the payload; empty if the slot's value has none."""
    offset: int
    """The journal offset of the entry; each entry takes one offset."""
    payload: StoredPayload | None
    """Place of the payload; None if the value has none, or if it is not on this disk."""
    is_known: bool = True
    """False if the identity of the slot's value is lost."""

    @property
    def is_faulty(self) -> bool:
        return not self.is_known or (self.digest != b"" and self.payload is None)


@dataclass(frozen=True, slots=True)
class FloorEntry:
    """The newest floor: the first position of the log, the description of the state before it, and the journal offset
    of the floor's entry."""

    position: int
    content: bytes
    offset: int


class SlotIndex:
    """The index of a journal: built by replaying it from its start, updated with every entry that is appended."""

    def __init__(self) -> None:
        self.slots: dict[int, SlotEntry] = {}
        self.floor: FloorEntry | None = None
        self._payloads: dict[tuple[int, bytes], StoredPayload] = {}

    def note(self, head: Head, offset: int, payload_bytes: int | None) -> None:
        """Adds an entry; `payload_bytes` is None if it has no payload, or a damaged one."""
        if head.kind is EntryKind.FLOOR:
            self.floor = FloorEntry(head.position, head.content, offset)
            return
        # By position as well: a slot below a floor goes with its payloads, and another position with the same payload
        # keeps its own.
        key = (head.position, head.digest)
        if payload_bytes is not None:
            self._payloads[key] = StoredPayload(offset, payload_bytes)
        # A reference finds the payload of an earlier entry; if that one is damaged the slot is faulty until a put
        # brings it again.
        payload = self._payloads.get(key) if head.digest else None
        is_known = head.kind is not EntryKind.UNKNOWN
        self.slots[head.position] = SlotEntry(head.number, head.digest, offset, payload, is_known)

    def has(self, position: int, number: int) -> bool:
        """Returns True if the slot's newest entry has this proposal number, and its identity is known."""
        slot = self.slots.get(position)
        # A proposal number names one value for a position: an entry with the same number is about the same value.
        return slot is not None and slot.is_known and slot.number == number

    def is_put_behind(self, position: int, number: int, offset: int) -> bool:
        """Returns True if a newer, complete entry replaces the one at `offset` (its slot was put again, or a newer
        floor), or if the slot is below the floor."""
        if number == FLOOR_NUMBER:
            return self.floor is not None and self.floor.offset > offset
        slot = self.slots.get(position)
        if slot is None:
            # No slot at all is only harmless below the floor: elsewhere it would be a vote that is forgotten.
            return self.floor is not None and position < self.floor.position
        # A faulty slot still needs what the old entry may have: its payload, or its identity.
        return slot.offset > offset and not slot.is_faulty

    def find(self, position: int, digest: bytes) -> StoredPayload | None:
        """Returns the payload with this digest that any entry stored for this position; None if there is none."""
        return self._payloads.get((position, digest))

    def forget_payload(self, position: int, digest: bytes) -> None:
        """Forgets a payload that was found damaged; the slot that needs it is faulty from then on."""
        self._payloads.pop((position, digest), None)
        slot = self.slots.get(position)
        if slot is not None and slot.digest == digest:
            self.slots[position] = replace(slot, payload=None)

    def needing(self, start: int, end: int) -> list[int | None]:
        """Returns the positions of slots, and None for the floor, whose newest entry or payload lies in [start, end) of
        the journal."""
        positions: list[int | None] = [
            position
            for position, slot in self.slots.items()
            # Both are needed: the newest entry says what was accepted, an earlier one may hold the payload that it
            # refers to.
            if start <= slot.offset < end or (slot.payload is not None and start <= slot.payload.offset < end)
        ]
        return positions if self.floor is None or not start <= self.floor.offset < end else [*positions, None]

    def forget_payloads(self, start: int, end: int) -> None:
        """Forgets the stored payloads at journal offsets [start, end), which were found damaged."""
        for key in [key for key, stored in self._payloads.items() if start <= stored.offset < end]:
            self.forget_payload(*key)

    def drop_below(self, position: int) -> None:
        """Forgets the slots below a position, and their payloads."""
        self.slots = {slot_position: slot for slot_position, slot in self.slots.items() if slot_position >= position}
        self._payloads = {key: stored for key, stored in self._payloads.items() if key[0] >= position}

    def drop_entries_below(self, offset: int) -> None:
        """Forgets the payloads in the part of the journal below `offset`, which is deleted. No live entry may be left
        there."""
        # Whoever moves live entries has written them anew behind `offset` by now; one that was missed would be a vote
        # forgotten.
        assert all(oldest >= offset for oldest, _ in self.live()), "something live would be deleted"
        self._payloads = {key: stored for key, stored in self._payloads.items() if stored.offset >= offset}

    def live(self) -> Iterator[tuple[int, int | None]]:
        """Yields, for each slot and at last for the floor (None), the offset of the oldest journal entry that it needs,
        with the slot's position."""
        for position, slot in self.slots.items():
            # Oldest first is what counts: segments go from the front, and a slot is in the way until both of its
            # entries are behind.
            yield min(slot.offset, slot.payload.offset if slot.payload else slot.offset), position
        if self.floor is not None:
            # The floor lives, too. A journal without it would begin at 0 again, where nothing is left of what it had
            # promised.
            yield self.floor.offset, None

    def live_in(self, ends: Iterable[int]) -> Iterator[list[int | None]]:
        """Yields, for each of the journal's oldest segments (they end at `ends`), the positions of slots that need it
        (None: the floor). Each slot is named once, with the oldest segment that it needs."""
        # Reversed, so that the oldest is taken from the end of the list.
        waiting = sorted(self.live(), key=lambda item: item[0], reverse=True)
        for end in ends:
            positions: list[int | None] = []
            while waiting and waiting[-1][0] < end:
                positions.append(waiting.pop()[1])
            yield positions

    def bytes_of(self, position: int | None) -> int:
        """Returns about how many payload bytes have to be copied to write a slot, or the floor (None), again."""
        payload = None if position is None else self.slots[position].payload
        return payload.size if payload else 0
