"""The simulated disk of a Paxos replica: a state, and writes that a crash may still undo.

Writes become durable in order. A crash keeps any part of the writes that were not durable; the `mood` of the crash
decides which. A payload may be torn while its catalog row survives. A row is whole or missing: it has its own checksum,
and is stored apart from the payload.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator

from msgspec import structs

from tidelog.replication.paxos.events import Persist
from tidelog.replication.paxos.state import UNKNOWN, WITH_PAYLOAD, Metadata, Prefix, Record, Slot, Status, StoredLog


class LogDisk:
    """The disk of one node. `incarnations` counts the physical disks that the node has had."""

    def __init__(self, node: int) -> None:
        self.node = node
        self.incarnations = 0
        self.wipe()

    def wipe(self) -> None:
        """Replaces the disk by an empty one."""
        self.incarnations += 1
        self.metadata = Metadata(f"{self.node}/{self.incarnations}")
        self.floor = Prefix()
        self.slots: dict[int, Slot] = {}
        self.pending: deque[Persist] = deque()

    def initialise(self, founders: tuple[tuple[int, str], ...]) -> None:
        """Initialises the disk as that of a voter in a group that was founded before the run."""
        self.metadata = structs.replace(self.metadata, status=Status.VOTING, cluster_id="sim", founders=founders)

    def load(self) -> StoredLog:
        """Returns the log that a starting process finds on the disk."""
        return StoredLog(self.metadata, self.floor, tuple(self.slots[position] for position in sorted(self.slots)))

    def write(self, persist: Persist) -> None:
        self.pending.append(persist)

    def sync(self, sequence: int) -> Iterator[Record]:
        """Makes the writes up to this sequence number durable, and yields their records."""
        while self.pending and self.pending[0].sequence <= sequence:
            yield from self._put(self.pending.popleft().records)

    def crash(self, rng: random.Random, mood: str) -> Iterator[Record]:
        """Loses all or some of the writes that were not durable, and yields the records that survive."""
        pending, self.pending = self.pending, deque()
        for persist in pending:
            for record in persist.records:
                if mood == "all" or (mood in {"some", "torn"} and rng.random() < 0.5):
                    torn = mood == "torn" and isinstance(record, Slot) and record.value.kind in WITH_PAYLOAD
                    survivor = structs.replace(record, faulty=True) if torn and isinstance(record, Slot) else record
                    yield from self._put((survivor,))

    def damage(self, pick: int) -> int | None:
        """Makes one payload unreadable and returns its position; None if there is none. Slots with a write under way
        are left out, since a read returns the newer write."""
        rewritten = {r.position for persist in self.pending for r in persist.records if isinstance(r, Slot)}
        sound = [
            position
            for position, slot in sorted(self.slots.items())
            if slot.value.kind in WITH_PAYLOAD and not slot.faulty and position not in rewritten
        ]
        if not sound:
            return None
        position = sound[pick % len(sound)]
        self.slots[position] = structs.replace(self.slots[position], faulty=True)
        return position

    def lose_name(self, pick: int) -> int | None:
        """Makes one slot's payload unreadable, and the record of which value it was; returns its position, None if
        there is none."""
        named = [p for p in sorted(self.slots) if self.slots[p].value != UNKNOWN]
        if not named:
            return None
        position = named[pick % len(named)]
        self.slots[position] = Slot(position, self.slots[position].number, UNKNOWN, faulty=True)
        return position

    def _put(self, records: tuple[Record, ...]) -> Iterator[Record]:
        for record in records:
            if isinstance(record, Slot):
                self._put_slot(record)
            elif isinstance(record, Prefix):
                self.floor = max(self.floor, record, key=lambda prefix: prefix.position)
                self.slots = {p: slot for p, slot in self.slots.items() if p >= self.floor.position}
            else:
                self.metadata = record
            yield record

    def _put_slot(self, slot: Slot) -> None:
        if slot.position >= self.floor.position:
            self.slots[slot.position] = slot
