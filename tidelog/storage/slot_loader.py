"""Opening a slot store, the disk of a Paxos replica: replay its journal, and find out what it has forgotten.

A Paxos replica may forget what was never durable, and nothing else: one forgotten vote, and two values can be chosen
for one position. So all that damage can do has to end in one of these, never unnoticed:
- The payload alone is lost: the slot is *faulty*, its identity known. Another replica gives the payload back.
- The head is lost as well: position and number are in the catalog row, and the name of the value is in the row before
  it, as it was when that value was put under that number first. At most it is lost that the value was chosen.
- That row, too: the slot is faulty, its identity None, unless an entry before it has the same position and number. It
  holds the same value then, for a number names one for a position, and counts again.
- The row is lost, too, so that it is unknown which slot it was; or a floor; or the journal, or both copies of the
  metainfo: the store is *amnesiac*. The replica must not vote under its old identity any more.

An amnesiac store takes no entries, and no opening changes that: what is lost for certain is either recorded by the
loader (a LOST row), or found missing again each time. Where opening a log would write something that hides the loss,
new metainfo over lost metainfo or an empty segment for a missing journal, it is opened for reading only.

What cannot be noticed: that an old backup was restored to the directory.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field

from msgspec import UNSET
from xxhash import xxh3_128_digest

from tidelog.config.errors import ConfigError
from tidelog.model.ids import PartitionId
from tidelog.model.ports import Files
from tidelog.storage.load_report import LoadReport
from tidelog.storage.loader import load_log
from tidelog.storage.metainfo import NAMES, MetainfoStore
from tidelog.storage.open_files import OpenFiles, open_file
from tidelog.storage.partition_log import LogSettings, PartitionLog
from tidelog.storage.read_only import open_read_only
from tidelog.storage.rows import ROW_BYTES, Kind, Row, name_of
from tidelog.storage.scan import BadEnd
from tidelog.storage.segment import Damage, Segment
from tidelog.storage.slot_entries import FLOOR_NUMBER, EntryKind, Head, decode_entry, named_head, salvage_head
from tidelog.storage.slot_index import SlotIndex

JOURNAL_SETTINGS = LogSettings(segment_bytes=32 << 20, segment_ms=1 << 62, segment_rows_max=32_768, producers_max=1)


@dataclass(frozen=True, slots=True)
class StoredSlot:
    """A slot as it is on the disk: position, proposal number, identity and digest of the value."""

    position: int
    number: int
    identity: bytes | None
    """Identity of the value; None if it is damaged. Position and number are right in any case."""
    is_faulty: bool
    """True if the identity or the payload is not on this disk."""
    digest: bytes = b""
    """Digest of the payload; empty if the value has none."""


@dataclass(slots=True)
class StoredSlots:
    """Everything that the disk of a Paxos replica holds."""

    metainfo: bytes | None
    """The replica's metainfo as last stored; None if none was stored, or if it is lost."""
    floor: tuple[int, bytes] | None
    slots: list[StoredSlot]
    """The slots in order of position; none below the floor."""
    is_amnesiac: bool
    """True if something durable is lost, and it is not known what: this replica must be replaced, not restarted."""
    report: LoadReport = field(default_factory=LoadReport)


def load_slots(
    opened: OpenFiles,
    directory: str,
    identity: PartitionId,
    settings: LogSettings,
    *,
    new_incarnation: str,
    now_ms: int,
    bad_end: BadEnd = BadEnd.TRUNCATE,
) -> tuple[PartitionLog, SlotIndex, StoredSlots]:
    """Opens the journal in `directory`, or makes it. Returns the journal, its index, and everything that it holds.

    `bad_end` decides about damaged entries at the end. With `KEEP` such an entry is a faulty slot like any other; it is
    for replicas that can finish an election although all voters have lost the same entry, as after a common power cut.
    With `TRUNCATE` it ends the journal; a `BadEnd` with a position keeps entries below that position.

    Blocking. Raises `ConfigError` if the directory holds no slot store; `OSError` if its files cannot be opened or
    made. Damage never raises.
    """
    # Before the loader: it would write new metainfo over what is lost, and the loss would never be seen again.
    amnesia = _find_amnesia(opened.files, directory, identity)
    if amnesia is not None:
        # Nothing is written, so the next opening finds the same, and the replica stays without a vote.
        journal, report = open_read_only(opened.files, directory, identity)
    else:
        journal, report = load_log(
            opened, directory, identity, settings, new_incarnation=new_incarnation, now_ms=now_ms, bad_end=bad_end
        )
        # Before anything is shown: what a power cut takes afterwards is a vote that can be cast twice.
        _settle(journal, opened.files)
    replay = _Replay(journal)
    amnesia = amnesia or replay.run()
    if amnesia is not None:
        report.say(f"{amnesia}; what this replica has promised and accepted is not known any more")
        journal.offline_reason = amnesia
    metainfo = None if journal.replica is UNSET else journal.replica
    floor = replay.index.floor
    stored = StoredSlots(metainfo, (floor.position, floor.content) if floor else None, [], amnesia is not None, report)
    # Slots below the floor are left over from before it; what was agreed on there is known from the floor.
    replay.index.drop_below(floor.position if floor else 0)
    for position, entry in sorted(replay.index.slots.items()):
        value_identity = replay.identities[position]
        stored.slots.append(StoredSlot(position, entry.number, value_identity, entry.is_faulty, entry.digest))
    return journal, replay.index, stored


def _find_amnesia(files: Files, directory: str, identity: PartitionId) -> str | None:
    """Returns why durable state must be lost, from the files as they are before a loader has changed them, or None.

    A new store makes its journal durable before its metainfo, and `metainfo.0` before `metainfo.1`, and takes entries
    only then. So no crash leaves entries in a journal without metainfo, nor metainfo without a journal.
    """
    names = files.list(directory)
    journal = [name for name in names if name.endswith((".log", ".catalog"))]
    # Metainfo is written twice and last, so metainfo without a journal is of a journal that was lost.
    if MetainfoStore(files, directory, identity).load() is not None:
        return None if journal else "the journal is missing"
    # `metainfo.1` is begun when `metainfo.0` is durable, and entries are taken after both: no crash of a new store
    # leaves either without sound metainfo.
    if NAMES[1] in names or any(_holds_entries(files, directory, name) for name in journal):
        return "both metainfo copies are lost"
    return None


def _holds_entries(files: Files, directory: str, name: str) -> bool:
    with closing(open_file(files, f"{directory}/{name}")) as file:
        return file.size() > (ROW_BYTES if name.endswith(".catalog") else 0) or int(name[:20]) > 0


def _settle(journal: PartitionLog, files: Files) -> None:
    """Makes durable what the journal was found to hold: what a replica has reported must stay, and what it has denied
    must not come back."""
    if journal.offline_reason is not None:
        return
    try:
        # The process before may have truncated what it could not write, and died before the disk knew. If that came
        # back with a power cut, the slot would hold what this replica has denied.
        journal.active.truncate(journal.active.slots, [], journal.tail)
        journal.active.log.sync()
        # The same for its metainfo: what was read may be in the page cache alone, and promises are shown from now on.
        MetainfoStore(files, journal.directory, journal.identity).write_again()
        files.sync_dir(journal.directory)
    except OSError as error:
        journal.take_offline(f"what was found could not be made durable: {error}")


class _Replay:
    """The replay of a journal, entry by entry, into an index."""

    def __init__(self, journal: PartitionLog) -> None:
        self.index = SlotIndex()
        self.identities: dict[int, bytes | None] = {}
        self._journal = journal
        self._lost_floor: int | None = None

    def run(self) -> str | None:
        """Replays the whole journal; returns why it must have lost something durable (the store is amnesiac then), or
        None."""
        lost: Damage | None = None
        start = self._journal.log_start_offset
        for part in self._journal.parts(start):
            for entry in [part] if isinstance(part, Damage) else part.entries(start):
                if isinstance(entry, Damage):
                    # A lost entry may have been of any slot, so no slot is sure any more. The replay goes on, for what
                    # is left helps others.
                    lost = lost or entry
                else:
                    assert isinstance(part, Segment)
                    self._take(part, entry)
        if lost is not None:
            return f"entries {lost.start} to {lost.end - 1} of the journal are lost ({lost.reason})"
        if self._lost_floor is not None:
            return f"the floor at position {self._lost_floor} is damaged"
        return None

    def _take(self, segment: Segment, row: Row) -> None:
        head, payload = read_entry(segment, row)
        # Amnesia, unless a newer floor follows: what lay below is known from the floor alone.
        if head.number == FLOOR_NUMBER and head.kind is EntryKind.UNKNOWN:
            self._lost_floor = head.position
            return
        # An entry before this one has the same position and number. A number names one value for a position, so what
        # that one says holds, but perhaps for that it is chosen.
        if head.kind is EntryKind.UNKNOWN and self.index.has(head.position, head.number):
            return
        self.index.note(head, row.base_offset, None if payload is None else len(payload))
        if head.kind is EntryKind.FLOOR:
            # A newer floor makes up for any damaged one before it.
            self._lost_floor = None
        else:
            self.identities[head.position] = None if head.kind is EntryKind.UNKNOWN else head.content


def read_entry(segment: Segment, row: Row) -> tuple[Head, bytes | None]:
    """Returns what is left of an entry, all of it verified: head and payload, or the head alone, or only position and
    number.

    Raises `ConfigError` for a sound batch that is no journal entry.
    """
    data = segment.raw_batch(row)
    # From here on three witnesses, each apart from the last: the entry itself, its head with a checksum in the row, the
    # NAME row.
    if xxh3_128_digest(data) == row.digest:
        entry = decode_entry(data)
        if entry is None:
            raise ConfigError(f"{segment.log_path} does not belong to a slot store: another version wrote it")
        return entry
    head = salvage_head(data, row.base_sequence) or _head_by_name(segment, row)
    return head or Head(EntryKind.UNKNOWN, row.position, row.number), None


def _head_by_name(segment: Segment, row: Row) -> Head | None:
    """Returns the head of an entry from the NAME row before its own row; None if there is no such row."""
    # The NAME row stands right before its entry's row, in the same write. In any other slot it names another entry.
    slot = row.sequence - segment.first_sequence - 1
    named = segment.row(slot) if slot >= segment.body_slot else None
    if named is None or named.kind != Kind.NAME:
        return None
    return named_head(name_of(named), row.position, row.number)
