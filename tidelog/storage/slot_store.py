"""What a Paxos replica keeps on its disk: a value for each position, a floor, and the replica's own facts.

The store knows nothing of Paxos but the shape of an acceptor's record: position, number, the value's *identity* (bytes
that the caller makes and reads) and its *payload*, which may be large, may be missing, and can be had from a peer. A
`PartitionLog` is its journal: each put is an entry behind the last (`slot_entries`), and the newest entry of a position
counts. The journal's offsets are its own affair. So the store has of the log what took long to get right: checksums
apart from the data, durable marks, torn tails told from damage, group commit, segments, tools.

**Durability.** A put is visible at once and durable when `durable_end` has reached what it returned. Many puts share a
commit: the store stands in for a `PartitionLog` in the `LogWriter`.

**Payloads are written once.** An acceptor stores a value when it accepts it and again when it learns that it is chosen:
the second entry only refers to the payload, by position and digest.

**Facts** (what was promised, which numbers were used) no peer can give back; they are in both metainfo copies.

**Space.** `delete_below` gives up whole segments, oldest first. What is live in them is written anew behind the end;
the segments go when that is durable, never before, because the row that orders a deletion may reach the disk before
anything else does. Positions rise with time, so there is hardly ever much to move.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from msgspec import structs
from xxhash import xxh3_128_digest

from tidelog.model.errors import DamagedBatch, DiskFull, Overloaded, TidelogError
from tidelog.model.ids import PartitionId
from tidelog.model.ports import Buffer
from tidelog.storage.metainfo import Metainfo
from tidelog.storage.open_files import OpenFiles
from tidelog.storage.partition_log import LogSettings, PartitionLog
from tidelog.storage.rows import Row
from tidelog.storage.segment import Segment
from tidelog.storage.slot_entries import FLOOR_NUMBER, EntryKind, Head, decode_entry, encode_entry
from tidelog.storage.slot_index import SlotIndex
from tidelog.storage.slot_loader import JOURNAL_SETTINGS, StoredSlot, StoredSlots, load_slots, read_entry
from tidelog.storage.unsynced import Commit

FACTS_BYTES_MAX = 2048
MOVED_BYTES_MAX = 1 << 20
"""What one `delete_below` writes anew at most: a millisecond or so of the caller's time."""
MOVED_SHARE = 4
"""A segment is worth giving up if no more than one part in so many of it has to be moved."""
ENTRY_BYTES = 256
"""What an entry is taken to cost besides its payload."""

__all__ = ["JOURNAL_SETTINGS", "SlotStore", "StoredSlot", "StoredSlots"]


class SlotStore:
    """The disk of one replica. Single-threaded, but for `Commit.run` and what `store_facts` returns.

    Puts raise `DiskFull` or `Overloaded` (nothing was written, try again later), `LogOffline` (nothing was, nor will
    be), or `InternalError` (the outcome is unknown; the store is offline now).
    """

    def __init__(self, journal: PartitionLog, index: SlotIndex, now_ms: int) -> None:
        self.journal = journal
        self._index = index
        self._now_ms = now_ms
        self._epoch = journal.tail.epoch + 1  # an opening is an epoch: see `rows`
        self._deletion: tuple[int, int] | None = None
        """(journal offset to delete below, where the journal has to be durable up to before)."""
        self._noted_segment = -1
        self._noted = journal.metainfo(0)

    @classmethod
    def open(
        cls,
        opened: OpenFiles,
        directory: str,
        identity: PartitionId,
        settings: LogSettings = JOURNAL_SETTINGS,
        *,
        new_incarnation: str,
        now_ms: int,
    ) -> tuple[SlotStore, StoredSlots]:
        """Opens the store in `directory`, or makes an empty one. Blocking. Raises as `load_slots`."""
        journal, index, stored = load_slots(
            opened, directory, identity, settings, new_incarnation=new_incarnation, now_ms=now_ms
        )
        return cls(journal, index, now_ms), stored

    @property
    def incarnation(self) -> str:
        """Drawn when the store was made on this disk."""
        return self.journal.incarnation

    # -- slots ----------------------------------------------------------------------------------------------------

    def put(
        self, position: int, number: int, identity: bytes, payload: Buffer | None, *, digest: bytes | None = None
    ) -> int:
        """Stores a slot in place of what the position held; returns the `durable_end` that covers it.

        `digest` names the payload; by default it is taken of it. A payload that is stored for this position already is
        not written again. A digest without payload stands for the one that is stored (`has_payload`); if none is, the
        slot is faulty until a put brings it.
        """
        floor = self._index.floor
        assert floor is None or position >= floor.position, f"position {position} is below the floor"
        assert number < FLOOR_NUMBER
        if digest is None:
            digest = b"" if payload is None else xxh3_128_digest(payload)
        assert payload is None or digest, "a payload has a digest"
        if digest and (payload is None or self.has_payload(position, digest)):
            return self._append(Head(EntryKind.REFERENCE, position, number, digest, identity), None)
        return self._append(Head(EntryKind.SLOT, position, number, digest, identity), payload)

    def set_floor(self, position: int, floor: bytes) -> int:
        """Says that the log begins here; `floor` is what is to be known of what lay before. Returns as `put`.

        Slots below are not given back at the next opening once this is durable; `delete_below` removes them.
        """
        last = self._index.floor
        assert last is None or position >= last.position, "a floor never falls"
        return self._append(Head(EntryKind.FLOOR, position, FLOOR_NUMBER, content=floor), None)

    def has_payload(self, position: int, digest: bytes) -> bool:
        """True if a payload with this digest is stored for this position, and was sound when last read."""
        return self._index.find(position, digest) is not None

    def payload(self, position: int, digest: bytes | None = None) -> bytes:
        """The payload with this digest that was stored for the position, or that of the slot's value; verified.

        `DamagedBatch` if it is not to be had here; a slot that needs it is faulty from then on. Raises `Overloaded` if
        the files cannot be opened now.
        """
        if digest is None:
            digest = self._index.slots[position].digest
        stored = self._index.find(position, digest)
        if stored is None:
            raise DamagedBatch(f"the payload at position {position} is not stored on this disk")
        try:
            head, payload = self._read(stored.offset)
        except DamagedBatch:
            self._index.forget_payload(position, digest)
            raise
        assert (head.position, head.digest) == (position, digest) and payload is not None
        return payload

    def _read(self, offset: int) -> tuple[Head, bytes | None]:
        entry = decode_entry(self.journal.read(offset, 1, self.journal.log_end_offset).data)
        assert entry is not None, "what was replayed or written was an entry"
        return entry

    def _append(self, head: Head, payload: Buffer | None) -> int:
        offset = self.journal.log_end_offset
        self.journal.append([encode_entry(head, payload, offset, self._epoch)], self._now_ms)
        self._index.note(head, offset, None if payload is None else len(payload))
        return self.journal.log_end_offset

    # -- facts ----------------------------------------------------------------------------------------------------

    def store_facts(self, facts: bytes) -> Callable[[], None]:
        """Replaces the replica's facts, in both copies. The call that is returned does it: blocking, for the thread
        that commits run on, in order among themselves; raises `OSError`, and the facts may then be old or new.

        Puts are not awaited: who needs them on the disk first awaits their commit first.
        """
        assert 0 < len(facts) <= FACTS_BYTES_MAX, f"{len(facts)} bytes of facts"
        info = self.journal.metainfo(0)

        def store() -> None:
            self.journal.replica = facts
            self._store_metainfo(info)

        return store

    def _store_metainfo(self, info: Metainfo) -> None:
        """On the thread of commits. Whatever the order of calls, no mark falls, and no old facts come back."""
        info = structs.replace(
            info,
            durable_sequence=max(info.durable_sequence, self._noted.durable_sequence),
            end_offset=max(info.end_offset, self._noted.end_offset),
            log_start_offset=max(info.log_start_offset, self._noted.log_start_offset),
            replica=self.journal.replica,
        )
        self.journal.store_metainfo(info)
        self._noted = info

    # -- commit ---------------------------------------------------------------------------------------------------

    @property
    def durable_end(self) -> int:
        """Puts that returned this or less are durable."""
        return self.journal.durable_offset

    @property
    def offline_reason(self) -> str | None:
        """Why nothing can be written until the store is opened again; None if it can."""
        return self.journal.offline_reason

    @property
    def is_dirty(self) -> bool:
        """True if something waits for a commit."""
        return self.journal.is_dirty

    def begin_commit(self) -> Commit:
        """As `PartitionLog.begin_commit`.

        The first commit of an opening, and of a segment, also notes in the metainfo how far it came. Else nobody
        would miss a last segment whose files are both lost.
        """
        commit = self.journal.begin_commit()
        if self.journal.active.base_offset == self._noted_segment:
            return commit
        self._noted_segment = self.journal.active.base_offset
        info = structs.replace(self.journal.metainfo(0), durable_sequence=commit.sequence, end_offset=commit.offset)
        return replace(commit, afterwards=lambda: self._store_metainfo(info))

    def end_commit(self, commit: Commit, error: OSError | None) -> None:
        """As `PartitionLog.end_commit`; then orders the deletion that waited for this commit, if one did. So the store
        may be dirty again: nobody has to hurry for that."""
        self.journal.end_commit(commit, error)
        self._delete_prefix()

    def mark(self) -> None:
        """Notes how far the store is durable, for one that has gone idle. Best effort, no fsync."""
        self.journal.mark()

    def close(self) -> None:
        """As `PartitionLog.close`."""
        self.journal.close(0)

    # -- space ----------------------------------------------------------------------------------------------------

    def delete_below(self, position: int) -> None:
        """Forgets the slots below `position`, which the floor must allow, and gives back the space of segments that are
        of no more use: when all that was put until now, the floor included, is durable. Raises as a put.
        """
        floor = self._index.floor
        assert floor is not None and position <= floor.position, f"the floor is not at {position} yet"
        self._index.drop_below(position)
        start = self._vacate()
        if start > self.journal.log_start_offset:
            self._index.drop_entries_below(start)
            self._deletion = (start, self.journal.log_end_offset)
            self._delete_prefix()

    def _vacate(self) -> int:
        """Moves what is live in the oldest segments, as far as that is worth it; returns where the rest begins."""
        sealed = self.journal.segments[:-1]
        moved_bytes = 0
        live = self._index.live_in(segment.end_offset for segment in sealed)
        for segment, needs in zip(sealed, live, strict=True):
            cost = sum(ENTRY_BYTES + self._index.bytes_of(need) for need in needs)
            moved_bytes += cost
            if cost * MOVED_SHARE > segment.log_bytes or moved_bytes > MOVED_BYTES_MAX:
                return segment.base_offset
            try:
                for need in needs:
                    self._move(need)
            except (DiskFull, Overloaded):
                return segment.base_offset
        return sealed[-1].end_offset if sealed else 0

    def _move(self, position: int | None) -> None:
        """Writes a slot, or the floor (None), anew behind the end, as far as it can be read."""
        if position is None:
            floor = self._index.floor
            assert floor is not None
            self._append(Head(EntryKind.FLOOR, floor.position, FLOOR_NUMBER, content=floor.content), None)
            return
        slot = self._index.slots[position]
        head, payload = self._head_of(position), None
        if slot.payload is not None:
            with suppress(DamagedBatch):
                payload = self.payload(position)
        if head.kind is not EntryKind.UNKNOWN:
            whole = payload is not None or not head.digest
            head = head._replace(kind=EntryKind.SLOT if whole else EntryKind.REFERENCE)
        self._append(head, payload)

    def _head_of(self, position: int) -> Head:
        slot = self._index.slots[position]
        part = next(self.journal.parts(slot.offset))
        row = next(part.entries(slot.offset)) if isinstance(part, Segment) else None
        if isinstance(part, Segment) and isinstance(row, Row):
            return read_entry(part, row)[0]
        return Head(EntryKind.UNKNOWN, position, slot.number)

    def _delete_prefix(self) -> None:
        """Orders the deletion if what was moved for it is durable. One that fails for now is tried again."""
        if self._deletion is None or self._deletion[1] > self.durable_end or self.offline_reason is not None:
            return
        with suppress(TidelogError):
            self.journal.delete_prefix(self._deletion[0])
            self._deletion = None
