"""The disk of a Paxos replica: a value for each position, a floor (the first position), and the replica's metainfo.

The store knows nothing of Paxos but the shape of an acceptor's record: position, proposal number, the value's
*identity* (bytes that the caller encodes and decodes) and its *payload*, which may be large, may be missing, and can be
fetched from another replica. A `PartitionLog` is its journal: each put appends an entry (`slot_entries`), and the
newest entry of a position counts. The journal's offsets are its own. So the store gets from the log what took long to
get right: checksums apart from the data, durable marks, torn ends told from damage, flushes, segments, tools.

**Durability.** A put is visible at once and durable when `durable_end` has reached what it returned. Many puts share a
flush: the store stands in for a `PartitionLog` in the `LogWriter`.

**Vouching.** A torn end is told from a damaged one by the durable marks: what a mark covers was durable. A mark that is
written now and then does not cover the last puts, though they were reported durable. A store that *vouches* reports a
put only when a mark behind it is durable as well: one flush more for each round of puts, and no entry that was ever
reported can be taken for torn. The metadata log pays for that, since it cannot go on behind a value that no replica can
read; so damage must never be taken for the work of a power cut.

**Payloads are written once.** An acceptor stores a value when it accepts it and again when it learns that it is chosen:
the second entry only refers to the payload, by position and digest.

**Metainfo** of the replica (its promises, and which numbers were used) no other replica can give back. Both copies of
the journal's metainfo carry it, in `replica`.

**Space.** `delete_below` deletes whole segments, oldest first. Live entries in them are copied to the end first; the
segments are deleted when the copies are durable. Positions rise with time, so there is hardly ever much to copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from msgspec import UNSET, structs
from xxhash import xxh3_128_digest

from tidelog.model.errors import DiskFull, Overloaded, TidelogError
from tidelog.model.ids import PartitionId
from tidelog.model.ports import Buffer, Files
from tidelog.storage.flush import Flush
from tidelog.storage.metainfo import Metainfo
from tidelog.storage.open_files import OpenFiles
from tidelog.storage.partition_log import LogSettings, PartitionLog
from tidelog.storage.read_only import HANDLES_MAX, ReadOnlyFiles
from tidelog.storage.scan import BadEnd
from tidelog.storage.segment import Damage
from tidelog.storage.slot_entries import FLOOR_NUMBER, EntryKind, Head
from tidelog.storage.slot_index import SlotIndex
from tidelog.storage.slot_journal import SlotJournal
from tidelog.storage.slot_loader import JOURNAL_SETTINGS, StoredSlot, StoredSlots, load_slots

METAINFO_BYTES_MAX = 2048

__all__ = ["JOURNAL_SETTINGS", "SlotPut", "SlotStore", "StoredSlot", "StoredSlots"]


class SlotPut(NamedTuple):
    """The parameters of one `SlotStore.put`."""

    position: int
    number: int
    identity: bytes
    payload: Buffer | None
    digest: bytes


class SlotStore:
    """The disk of one Paxos replica. Single-threaded, but for `Flush.run` and the call that `store_metainfo` returns.

    Puts raise `DiskFull` or `Overloaded` (nothing was written, try again later), `LogOffline` (nothing was written, nor
    will be), or `InternalError` (the outcome is unknown; the store is offline now).
    """

    def __init__(self, journal: PartitionLog, index: SlotIndex, now_ms: int, *, vouches: bool = False) -> None:
        self.journal = journal
        self._vouches = vouches
        # All that an opening has found is durable, and vouched for (`_vouch_for_all`): the voter answers for it at
        # once.
        self._marked_end = self._mark_in_flush = self._vouched_end = journal.durable_offset
        """Journal offsets below which entries are covered by a durable mark that is written, that is in the flush under
        way, or that is durable."""
        self._entries = SlotJournal(journal, index, now_ms)
        self._deletion: tuple[int, int] | None = None
        """(journal offset to delete below, offset up to which the journal has to be durable before that); None if no
        deletion waits."""
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
        bad_end: BadEnd = BadEnd.TRUNCATE,
        vouches: bool = False,
    ) -> tuple[SlotStore, StoredSlots]:
        """Opens the store in `directory`, or makes an empty one; returns it with what it holds. Blocking. Raises
        `ConfigError` if the directory holds something else, `OSError` if its files cannot be opened or made."""
        journal, index, stored = load_slots(
            opened, directory, identity, settings, new_incarnation=new_incarnation, now_ms=now_ms, bad_end=bad_end
        )
        if vouches:
            _vouch_for_all(journal)
        return cls(journal, index, now_ms, vouches=vouches), stored

    @classmethod
    def look(
        cls, files: Files, directory: str, identity: PartitionId, *, bad_end: BadEnd = BadEnd.TRUNCATE
    ) -> tuple[SlotStore, StoredSlots]:
        """Opens a store for reading: nothing on the disk is changed. Returns it with what it holds. Blocking. Raises
        `ConfigError` if the directory holds something else, `OSError` if its files cannot be opened."""
        opened = OpenFiles(ReadOnlyFiles(files), HANDLES_MAX)
        store, stored = cls.open(opened, directory, identity, new_incarnation="", now_ms=0, bad_end=bad_end)
        store.journal.take_offline("it was opened for reading")
        return store, stored

    @property
    def incarnation(self) -> str:
        """Returns the id that was drawn when the store was made on this disk."""
        return self.journal.incarnation

    # -- slots ----------------------------------------------------------------------------------------------------

    def put(
        self, position: int, number: int, identity: bytes, payload: Buffer | None, *, digest: bytes | None = None
    ) -> int:
        """Stores a slot in place of what the position held; returns the `durable_end` that covers it.

        `digest` names the payload; by default it is computed. A payload that is stored for this position already is not
        written again. A digest without payload refers to the stored payload (`has_payload`); if none is stored, the
        slot is faulty until a put brings it.
        """
        if digest is None:
            digest = b"" if payload is None else xxh3_128_digest(payload)
        return self.put_all([SlotPut(position, number, identity, payload, digest)])

    def put_all(self, puts: Sequence[SlotPut]) -> int:
        """Stores several slots, in their order, all or none, with one write. A crash may still keep only the first few
        of them."""
        written: set[tuple[int, bytes]] = set()
        entries = [self._entry_of(put, written) for put in puts]
        return self._entries.append(*entries)

    def _entry_of(self, put: SlotPut, written: set[tuple[int, bytes]]) -> tuple[Head, Buffer | None]:
        """Returns the head and the payload of the journal entry for a put; the payload is None if the entry is to have
        none. `written` are the payloads of earlier puts in the same write."""
        position, number, identity, payload, digest = put
        floor = self._entries.index.floor
        assert floor is None or position >= floor.position, f"position {position} is below the floor"
        assert number < FLOOR_NUMBER
        assert payload is None or digest, "a payload has a digest"
        # Of puts in one write, too, only the first brings the payload; those behind it refer to it.
        is_there = (position, digest) in written or self.has_payload(position, digest)
        if digest and (payload is None or is_there):
            return Head(EntryKind.REFERENCE, position, number, digest, identity), None
        if payload is not None:
            written.add((position, digest))
        return Head(EntryKind.SLOT, position, number, digest, identity), payload

    def set_floor(self, position: int, floor: bytes) -> int:
        """Stores the floor: the log begins at this position, and `floor` describes the state before it. Returns the
        `durable_end` that covers it."""
        last = self._entries.index.floor
        # What lay below a floor may be gone. A lower one would bring back slots without what was decided there.
        assert last is None or position >= last.position, "a floor never falls"
        return self._entries.append((Head(EntryKind.FLOOR, position, FLOOR_NUMBER, content=floor), None))

    @property
    def floor_position(self) -> int:
        """Returns the position of the last floor; 0 if there is none."""
        floor = self._entries.index.floor
        return 0 if floor is None else floor.position

    def has_payload(self, position: int, digest: bytes) -> bool:
        """Returns True if a payload with this digest is stored for this position, and was sound when last read."""
        return self._entries.index.find(position, digest) is not None

    def is_payload_durable(self, position: int, digest: bytes) -> bool:
        """Returns True if a payload with this digest is stored durably for this position."""
        stored = self._entries.index.find(position, digest)
        # By the entry that holds the payload, not by the slot's newest: a reference may be younger, and its payload on
        # the disk long since.
        return stored is not None and stored.offset < self.durable_end

    def payload(self, position: int, digest: bytes | None = None) -> bytes:
        """Reads and verifies the payload with this digest that was stored for the position; by default that of the
        slot's value.

        Raises `DamagedBatch` if it is not on this disk; a slot that needs it is faulty from then on. Raises
        `Overloaded` if the files cannot be opened now.
        """
        if digest is None:
            digest = self._entries.index.slots[position].digest
        return self._entries.payload(position, digest)

    def take_damage(self) -> list[int | None]:
        """Returns the positions, and None for the floor, that need entries which the journal knows to be damaged: the
        caller has to put them again. A slot whose payload is lost is faulty from then on.

        A damaged entry that is not needed does not count. One that has lost its catalog row as well stays known as
        damaged: the next opening would find that something is lost, and not what (`give_up`).
        """
        index, damage = self._entries.index, self.journal.damage
        positions: dict[int | None, None] = {}
        for lost in damage.ranges():
            positions |= dict.fromkeys(index.needing(lost.start, lost.end))
            # Until it is put again the slot counts as faulty, so an election does not count on a payload that is not
            # here.
            index.forget_payloads(lost.start, lost.end)
            # With a sound row the entry is known to be obsolete once its slot is put again. Without one the next
            # opening would find a hole of which nobody knows what it held: the segment has to go (`give_up`).
            if lost.epoch is not None:
                damage.forget(lost.start, lost.end)
        return list(positions)

    def is_faulty(self, position: int) -> bool:
        """Returns True if the slot is stored, and its identity or its payload is not on this disk."""
        slot = self._entries.index.slots.get(position)
        return slot is not None and slot.is_faulty

    def is_rewritten(self, start: int, end: int) -> bool:
        """Returns True if the damage in [start, end) of the journal loses nothing: for each entry there, a newer
        complete entry of the slot or of the floor follows, or the slot is below the floor."""
        for entry in self.journal.entries(start):
            if isinstance(entry, Damage):
                return False
            if entry.base_offset >= end:
                return True
            # Position and number are in the catalog row, so this is known though the entry itself cannot be read.
            if not self._entries.index.is_put_behind(entry.position, entry.number, entry.base_offset):
                return False
        return True

    # -- metainfo -------------------------------------------------------------------------------------------------

    def store_metainfo(self, metainfo: bytes) -> Callable[[], None]:
        """Replaces the replica's metainfo, in both copies, when the returned call is made: blocking, on the thread of
        flushes, in the order of these calls. It raises `OSError`: the metainfo may then be old or new. It does not wait
        for puts: a caller who needs them on the disk first awaits their flush first."""
        assert 0 < len(metainfo) <= METAINFO_BYTES_MAX, f"{len(metainfo)} bytes of metainfo"
        info = self.journal.metainfo(0)

        def store() -> None:
            self.journal.replica = metainfo
            self._write_metainfo(info)

        return store

    def mend_metainfo(self) -> int:
        """Reads both metainfo copies, and writes a bad one again. Returns the number of bad copies. Blocking, on the
        thread of flushes."""
        return 0 if self.journal.replica is UNSET else self.journal.mend_metainfo(self._merged(self._noted))

    def _write_metainfo(self, info: Metainfo) -> None:
        """Stores the journal's metainfo with the newest bytes of the replica in it. On the thread of flushes."""
        # Two calls may have taken their metainfo before either is written. The later one must not put back an older
        # promise, nor lower a mark.
        info = self._merged(info)
        self.journal.store_metainfo(info)
        self._noted = info

    def _merged(self, info: Metainfo) -> Metainfo:
        """Returns metainfo that has the newest promises, and whose marks are no lower than those noted before, whatever
        the order of calls."""
        return structs.replace(
            info,
            durable_sequence=max(info.durable_sequence, self._noted.durable_sequence),
            end_offset=max(info.end_offset, self._noted.end_offset),
            log_start_offset=max(info.log_start_offset, self._noted.log_start_offset),
            replica=self.journal.replica,
        )

    # -- flush ---------------------------------------------------------------------------------------------------

    @property
    def durable_end(self) -> int:
        """Returns the journal offset up to which puts are durable. In a store that vouches, a durable mark behind them
        is durable as well, so that the next opening cannot take them for torn."""
        # A vouching store reports an entry when the mark behind it is durable, too. If it reported earlier, one bit of
        # rot at the end would look like a tear, and be truncated with what others were told (decision 0035).
        return self._vouched_end if self._vouches else self.journal.durable_offset

    @property
    def offline_reason(self) -> str | None:
        """Returns why nothing can be written until the store is opened again; None if it can be written."""
        return self.journal.offline_reason

    @property
    def is_dirty(self) -> bool:
        """Returns True if a write waits for a flush."""
        return self.journal.is_dirty

    def begin_flush(self) -> Flush:
        """Begins a flush of the journal.

        The first flush of each segment also notes in the metainfo how far it came. Otherwise it would go unnoticed if
        both files of the last segment were lost.
        """
        flush = self.journal.begin_flush()
        # Only marks that are written by now are in this flush; one that is written meanwhile waits for the next.
        self._mark_in_flush = self._marked_end
        # Once for each segment. Without it a last segment that has lost both its files would not be missed, for nothing
        # else knows that it was there.
        if self.journal.active.base_offset == self._noted_segment:
            return flush
        self._noted_segment = self.journal.active.base_offset
        info = structs.replace(self.journal.metainfo(0), durable_sequence=flush.sequence, end_offset=flush.offset)
        # Behind the fsyncs, as it says that they are done.
        return replace(flush, afterwards=lambda: self._note(info))

    def _note(self, info: Metainfo) -> None:
        """Stores in the metainfo how far a flush came, after its fsyncs, unless a write and its undoing have failed
        meanwhile: then these fsyncs may have succeeded for pages that are lost. On the thread of flushes."""
        if self.journal.offline_reason is None:
            self._write_metainfo(info)

    def end_flush(self, flush: Flush, error: OSError | None) -> None:
        """Ends a flush; then begins the deletion that waited for it, if there is one. So the store may have writes to
        flush again, which are not urgent."""
        self.journal.end_flush(flush, error)
        if self.offline_reason is None:
            # Not `_marked_end`: a mark that was written during this flush is not covered by it.
            self._vouched_end = self._mark_in_flush
        self._delete_records()

    def vouch(self) -> bool:
        """If the store reports a put only when a durable mark behind it is durable as well (it *vouches*), writes a
        mark for the durable entries that have none. Returns True if a mark waits for the next flush. Raises `DiskFull`
        or `Overloaded` (try again later), `LogOffline`, or `InternalError`: the store is offline now."""
        # A mark says how far everything was durable before it, so it is written when a flush has ended, and itself
        # needs the next one.
        if self._vouches and self._marked_end < self.journal.durable_offset:
            self.journal.vouch()
            self._marked_end = self.journal.durable_offset
        return self._vouches and self._vouched_end < self._marked_end

    def mark(self) -> None:
        """Appends a MARK row, which says up to where the journal is durable, for a store that has gone idle. Best
        effort, no fsync."""
        self.journal.mark()

    def close(self) -> None:
        """Flushes and closes the journal. Raises `OSError` or `Overloaded` if its metainfo could not be stored: the
        files are closed all the same."""
        self.journal.close(0)

    # -- space ----------------------------------------------------------------------------------------------------

    def delete_below(self, position: int) -> None:
        """Forgets the slots below `position`, which is at most the floor. Segments of the journal without live entries
        are deleted once all earlier puts, that of the floor among them, are durable. Raises `DiskFull`, `Overloaded`,
        `LogOffline` or `InternalError`."""
        floor = self._entries.index.floor
        assert floor is not None and position <= floor.position, f"the floor is not at {position} yet"
        # Before `vacate`: slots below the floor are dead, and what is dead is not moved.
        self._entries.index.drop_below(position)
        self._delete_entries(self._entries.vacate())

    def give_up(self, start: int, end: int) -> bool:
        """Deletes the segments of the journal up to the one with [start, end), where entries and their rows are
        damaged: otherwise the next opening would find that entries are lost, but not which. Their live entries are
        copied first, a bounded part with each call; the segments are deleted once the copies are durable. Returns
        False, and does nothing, while a slot or the floor needs the damaged entries: it has to be put again first.
        Raises `DiskFull`, `Overloaded`, `LogOffline` or `InternalError`."""
        # Its slot has to be put again first, by who knows the value. To give up the segment before that would forget a
        # vote.
        if self._entries.index.needing(start, end):
            return False
        # The segment of the damage must not be the active one, which never goes.
        self._entries.seal(start)
        self._delete_entries(self._entries.vacate(start))
        return True

    def _delete_entries(self, start: int) -> None:
        """Deletes the journal's entries below the journal offset `start`, none of which is live, once all earlier puts
        are durable."""
        if start > self.journal.log_start_offset:
            self._entries.index.drop_entries_below(start)
            # The row that orders a deletion may reach the disk before the copies of what lives below it. So it is
            # written only when these are durable.
            self._deletion = (start, self.journal.log_end_offset)
            self._delete_records()

    def _delete_records(self) -> None:
        """Deletes the journal's old entries, if the copies of live ones are durable. A deletion that fails is tried
        again after the next flush."""
        # `durable_end`, so that a vouching store has its mark behind the copies as well.
        if self._deletion is None or self._deletion[1] > self.durable_end or self.offline_reason is not None:
            return
        with suppress(TidelogError):
            self.journal.delete_records(self._deletion[0])
            self._deletion = None


def _vouch_for_all(journal: PartitionLog) -> None:
    """Writes a durable mark for all entries that an opening has found, since a voter answers for them from now on. If
    the disk is full, the mark is written with the next flush."""
    # Nothing to do if rows or metainfo vouch for all of it; behind a truncation its own rows do.
    if journal.offline_reason is None and not journal.is_behind_a_truncation and journal.marked < journal.tail.durable:
        with suppress(DiskFull, Overloaded):
            journal.vouch()
            journal.flush()
