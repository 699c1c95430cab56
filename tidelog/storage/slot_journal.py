"""The journal of a Paxos replica (slot store): entries are appended, read, and copied out of old segments.

A segment of the journal is deleted as a whole, and only from the front. So freeing space means that the live entries of
the oldest segments are copied to the end. That is done only for segments with few live entries; others wait. As
positions rise with time and a floor follows them, there is hardly ever much to copy.
"""

from __future__ import annotations

from contextlib import suppress

from tidelog.model.errors import DamagedBatch, DiskFull, Overloaded
from tidelog.model.ports import Buffer
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.rows import Row
from tidelog.storage.segment import Segment
from tidelog.storage.slot_entries import FLOOR_NUMBER, EntryKind, Head, decode_entry, encode_entry, name_for
from tidelog.storage.slot_index import SlotIndex
from tidelog.storage.slot_loader import read_entry

MOVED_BYTES_MAX = 1 << 20
"""The bytes that one `delete_below` copies at most: about a millisecond of the caller's time."""
MOVED_SHARE = 4
"""A segment is deleted early if at most one part in this many of it has to be copied."""
ENTRY_BYTES = 256
"""The bytes that an entry is assumed to need besides its payload."""


class SlotJournal:
    """A `PartitionLog` of journal entries, and the index of what it holds, kept in step."""

    def __init__(self, log: PartitionLog, index: SlotIndex, now_ms: int) -> None:
        self.log = log
        self.index = index
        self._now_ms = now_ms
        self._epoch = log.tail.epoch + 1  # an opening is an epoch: see `rows`

    def append(self, *entries: tuple[Head, Buffer | None], is_moving: bool = False) -> int:
        """Appends entries, all or none, in one write; returns the journal's end. With `is_moving` the entries are
        copies of live ones, and get NAME rows again. Raises `DiskFull` or `Overloaded` (nothing was written, try again
        later), `LogOffline` (nothing was written), or `InternalError` (the outcome is unknown; the log is offline
        now)."""
        placed = list(enumerate(entries, self.log.log_end_offset))
        # A batch carries its own offset, so an entry is encoded for the position at which it will lie.
        encoded = [encode_entry(head, payload, offset, self._epoch) for offset, (head, payload) in placed]
        self.log.append(
            encoded,
            self._now_ms,
            identities=[(head.position, head.number) for head, _ in entries],
            names=[self._name_for(head, is_moving=is_moving) for head, _ in entries],
        )
        for offset, (head, payload) in placed:
            self.index.note(head, offset, None if payload is None else len(payload))
        return self.log.log_end_offset

    def _name_for(self, head: Head, *, is_moving: bool) -> bytes:
        is_slot = head.kind in (EntryKind.SLOT, EntryKind.REFERENCE)
        # The second entry of a value, which says that it is chosen, has the number of the first, whose NAME row is
        # there.
        is_named = not is_moving and self.index.has(head.position, head.number)
        return name_for(head) if is_slot and not is_named else b""

    def payload(self, position: int, digest: bytes) -> bytes:
        """Reads and verifies a stored payload. Raises `DamagedBatch` if it is not stored, or is damaged; from then on
        it counts as not stored."""
        stored = self.index.find(position, digest)
        if stored is None:
            raise DamagedBatch(f"the payload at position {position} is not stored on this disk")
        try:
            data = self.log.read(stored.offset, 1, self.log.log_end_offset).data
        except DamagedBatch:
            # The slot is faulty from now on, so that its owner asks a peer for the payload and puts it again.
            self.index.forget_payload(position, digest)
            raise
        entry = decode_entry(data)
        assert entry is not None, "what was replayed or written was an entry"
        head, payload = entry
        assert (head.position, head.digest) == (position, digest) and payload is not None
        return payload

    # -- moving ---------------------------------------------------------------------------------------------------

    def vacate(self, through: int = -1) -> int:
        """Copies the live entries of the oldest segments to the journal's end, so that these segments can be deleted.
        Returns the journal offset below which nothing is live.

        Stops at the first segment of which more than one part in `MOVED_SHARE` would have to be copied, unless the
        segment begins at `through` or before. One call copies about `MOVED_BYTES_MAX` at most.
        """
        # A segment goes whole, so never the active one.
        sealed = self.log.segments[:-1]
        moved_bytes = 0
        live = self.index.live_in(segment.end_offset for segment in sealed)
        for segment, needs in zip(sealed, live, strict=True):
            cost = sum(self._cost(need) for need in needs)
            is_due = segment.base_offset <= through
            # A segment that is mostly alive stays, and with it all behind it: only a prefix of the journal can go.
            is_worth_it = cost * MOVED_SHARE <= segment.log_bytes and moved_bytes + cost <= MOVED_BYTES_MAX
            if not (is_due or is_worth_it):
                return segment.base_offset
            try:
                for need in needs:
                    # This runs on the event loop. The rest is moved by later calls; the segment stays until all in it
                    # is.
                    if moved_bytes >= MOVED_BYTES_MAX:
                        return segment.base_offset
                    moved_bytes += self._cost(need)
                    self._move(need)
            # What is moved so far does no harm: it is said twice. The segments before this one can go.
            except (DiskFull, Overloaded):
                return segment.base_offset
        return sealed[-1].end_offset if sealed else 0

    def _cost(self, position: int | None) -> int:
        return ENTRY_BYTES + self.index.bytes_of(position)

    def seal(self, offset: int) -> None:
        """Rolls a new segment if the entry at `offset` is in the active one. Raises `DiskFull`, `Overloaded`,
        `LogOffline` or `InternalError`."""
        if self.log.active.base_offset <= offset:
            self.log.roll(self._now_ms)

    def _move(self, position: int | None) -> None:
        """Copies a slot, or the floor (None), to the journal's end; a payload that cannot be read is left out."""
        if position is None:
            floor = self.index.floor
            assert floor is not None
            self.append((Head(EntryKind.FLOOR, floor.position, FLOOR_NUMBER, content=floor.content), None))
            return
        slot = self.index.slots[position]
        head, payload = self._head_of(position), None
        if slot.payload is not None:
            # A payload that is damaged is moved as a reference without one: the slot stays faulty, but keeps number and
            # identity, which are its vote.
            with suppress(DamagedBatch):
                payload = self.payload(position, slot.digest)
        if head.kind is not EntryKind.UNKNOWN:
            whole = payload is not None or not head.digest
            head = head._replace(kind=EntryKind.SLOT if whole else EntryKind.REFERENCE)
        self.append((head, payload), is_moving=True)

    def _head_of(self, position: int) -> Head:
        slot = self.index.slots[position]
        part = next(self.log.parts(slot.offset))
        row = next(part.entries(slot.offset)) if isinstance(part, Segment) else None
        if isinstance(part, Segment) and isinstance(row, Row):
            return read_entry(part, row)[0]
        # Number and position are all that is left of a vote, and must not be lost as well.
        return Head(EntryKind.UNKNOWN, position, slot.number)
