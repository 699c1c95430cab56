"""The remains of a metadata log, in the data directories of brokers that do not run, and the state that can be restored
from them together.

Every directory may hold snapshots, and replicas of the log; beside a log that was begun after a disk lost its promises,
the former log is kept. No vote is counted here, so lost promises do not matter: an entry that any disk knows to be
chosen is chosen.

The last entries of the log are only known to be accepted. All that follow without a gap are taken over, of two that
differ the one with the higher proposal number, as a Paxos leader would.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from tidelog.broker.consensus.log_member import metainfo_of
from tidelog.broker.consensus.stored import stored_log
from tidelog.broker.metadata.snapshots import SnapshotVoters
from tidelog.controller.apply import apply, with_voters
from tidelog.controller.records import decode_record
from tidelog.controller.snapshot import decode_image
from tidelog.model.cluster import ClusterImage
from tidelog.model.errors import TidelogError
from tidelog.model.ports import Files
from tidelog.replication.paxos.apply import Verdict, fold
from tidelog.replication.paxos.state import Kind, Metadata, Prefix, Value
from tidelog.replication.paxos.voters import VoterSet, decode_voters
from tidelog.storage.directory_identity import DirectoryIdentity, DirectoryIdentityStore
from tidelog.storage.log_manager import METADATA_LOG, SNAPSHOTS, metadata_directories
from tidelog.storage.read_only import ReadOnlyFiles
from tidelog.storage.slot_store import SlotStore
from tidelog.storage.snapshots import SnapshotStore


@dataclass(frozen=True, slots=True)
class Entry:
    """The entry at one position of the log, as one disk has it."""

    number: int
    value: Value
    is_chosen: bool
    payload: bytes | None


@dataclass(slots=True)
class Remains:
    """The remaining metadata in one directory. All replicas of the log in it have the same history, since its broker
    was in one cluster only."""

    name: str
    files: Files
    identity: DirectoryIdentity | None
    cluster_ids: set[str] = field(default_factory=set)
    node_id: int = 0
    storage: str = ""
    snapshot: tuple[int, str, bytes, VoterSet] | None = None
    """The newest undamaged snapshot in the directory: its position, its root hash in hexadecimal digits, its body and
    its voters. None if there is no such snapshot."""
    floors: list[Prefix] = field(default_factory=list)
    entries: dict[int, Entry] = field(default_factory=dict)
    number_max: int = 0
    """The largest Paxos proposal number on this disk: promised, issued, or of a slot."""
    damage: list[str] = field(default_factory=list)

    @property
    def has_log(self) -> bool:
        """True if the directory has a readable metadata log, even an empty one."""
        return bool(self.floors or self.entries)

    @property
    def position(self) -> int:
        """The position that this directory reaches by itself, counting entries that are not known to be chosen."""
        begin = max([0, *(floor.position for floor in self.floors), *([self.snapshot[0]] if self.snapshot else [])])
        return next(
            position for position in range(begin, begin + len(self.entries) + 1) if position not in self.entries
        )


def look(name: str, files: Files) -> Remains:
    """Returns the remaining metadata of a directory. Changes nothing in it. Raises `OSError`."""
    remains = Remains(name, files, DirectoryIdentityStore(ReadOnlyFiles(files)).current)
    for directory in metadata_directories(files):
        if files.exists(directory):
            try:
                _look_at_log(remains, directory)
            except (TidelogError, msgspec.DecodeError) as error:
                remains.damage.append(f"{directory} cannot be read: {error}")
    loaded = SnapshotStore(ReadOnlyFiles(files), SNAPSHOTS).load_newest()
    remains.damage += [f"a snapshot is damaged: {damage}" for damage in loaded.damaged]
    if loaded.snapshot is not None:
        header = loaded.snapshot.header
        voters = msgspec.msgpack.decode(header.header, type=SnapshotVoters).voters
        remains.snapshot = (header.position, header.root.hex(), loaded.snapshot.body, voters)
        remains.cluster_ids.add(decode_image(loaded.snapshot.body).cluster_id)
    if remains.identity is not None:
        remains.cluster_ids.add(remains.identity.cluster_id)
        remains.node_id, remains.storage = remains.identity.node_id, remains.identity.storage
    remains.cluster_ids.discard("")
    return remains


def _look_at_log(remains: Remains, directory: str) -> None:
    store, stored = SlotStore.look(remains.files, directory, METADATA_LOG)
    try:
        metainfo = metainfo_of(stored)
        metadata = Metadata("") if metainfo is None else metainfo.metadata
        if metainfo is not None:
            remains.cluster_ids.add(metainfo.cluster_id)
            remains.node_id, remains.storage = metainfo.node_id, store.incarnation
        # Nobody asks this disk for its vote, so what it knows to be chosen counts all the same.
        if stored.is_amnesiac:
            remains.damage.append(f"{directory} has lost something: {stored.report.findings[-1]}")
        log = stored_log(stored, metadata)
        # A log that was begun counts, were it empty; a directory in which none was begun does not.
        if metainfo is not None or log.slots or log.floor.position:
            remains.floors.append(log.floor)
        # Numbers that were only promised or issued, too: somebody may have written under them elsewhere.
        remains.number_max = max(remains.number_max, metadata.promised, metadata.issued)
        for slot in log.slots:
            remains.number_max = max(remains.number_max, slot.number, slot.value.birth)
            # Another disk may have it whole.
            if slot.faulty:
                remains.damage.append(f"position {slot.position} in {directory} is damaged")
                continue
            payload = store.payload(slot.position, slot.value.digest) if slot.value.digest else None
            _take(remains.entries, slot.position, Entry(slot.number, slot.value, slot.learned, payload))
    finally:
        store.close()


def _take(entries: dict[int, Entry], position: int, entry: Entry) -> None:
    present = entries.get(position)
    # A chosen entry is the truth; of others the one with the highest number, as a Paxos leader would propose it.
    if present is None or (entry.is_chosen, entry.number) > (present.is_chosen, present.number):
        entries[position] = entry


@dataclass(frozen=True, slots=True)
class Restored:
    """The state restored from all directories. It includes everything before `position`."""

    image: ClusterImage
    position: int
    prefix: Prefix
    voters: VoterSet | None
    unproven: tuple[int, ...]
    """The positions whose entries were taken over although no disk knows them to be chosen."""
    unreached: tuple[int, ...]
    """Positions whose entries are on a disk but are given up, since the entry at `position`, before them, is on no
    disk."""


def differences(all_remains: Sequence[Remains]) -> Iterator[str]:
    """Yields descriptions of entries and snapshots in two directories that contradict each other, because the
    directories have different histories."""
    chosen: dict[int, tuple[str, Value]] = {}
    roots: dict[int, tuple[str, str]] = {}
    for remains in all_remains:
        for position, entry in remains.entries.items():
            name, value = (
                chosen.setdefault(position, (remains.name, entry.value)) if entry.is_chosen else ("", entry.value)
            )
            # Two chosen values at one position: the directories went on apart, and nothing may be merged.
            if value != entry.value:
                yield f"{name} and {remains.name} have different entries at position {position}"
        if remains.snapshot is not None:
            name, root = roots.setdefault(remains.snapshot[0], (remains.name, remains.snapshot[1]))
            if root != remains.snapshot[1]:
                yield f"{name} and {remains.name} have different snapshots of position {remains.snapshot[0]}"


def restore(all_remains: Sequence[Remains]) -> Restored | None:
    """Returns the state that reaches furthest, from a snapshot or the log's beginning on; None if no metadata
    remain."""
    merged: dict[int, Entry] = {}
    for remains in all_remains:
        for position, entry in remains.entries.items():
            _take(merged, position, entry)
    floors = [floor for remains in all_remains for floor in remains.floors]
    restored = [_replay(start, floors, merged) for start in _starts(all_remains)]
    # The generation first: an older one may go further, and was given up all the same.
    return max(restored, key=lambda candidate: (candidate.image.generation, candidate.position), default=None)


def _starts(all_remains: Iterable[Remains]) -> Iterator[Restored]:
    for remains in all_remains:
        if remains.snapshot is not None:
            position, _, body, voters = remains.snapshot
            yield Restored(decode_image(body), position, Prefix(position), voters, (), ())
        # A log that still has its beginning can be replayed without a snapshot.
        if any(floor.position == 0 for floor in remains.floors) and 0 in remains.entries:
            yield Restored(ClusterImage(""), 0, Prefix(0), None, (), ())


def _replay(start: Restored, floors: Sequence[Prefix], merged: dict[int, Entry]) -> Restored:
    image, voters, position = start.image, start.voters, start.position
    # A value that is older than what stands before it means nothing (`paxos.apply`), so the newest birth at this
    # position has to be known: from a floor, and all entries since.
    # No older value can follow a snapshot without a log.
    prefix = _prefix_at(position, floors, merged) or Prefix(position, next_offset=image.position)
    unproven: list[int] = []
    while (entry := merged.get(position)) is not None:
        value = entry.value
        prefix, verdict = fold(prefix, value)
        # A void value means nothing, on any broker: a log that gave it effect would make another image than there was.
        if verdict is Verdict.APPLIED and entry.payload is not None:
            if value.kind is Kind.VOTERS:
                voters = decode_voters(entry.payload)
                image = with_voters(image, voters.voters, voters.next_voter_id)
            else:
                for i, line in enumerate(entry.payload.split(b"\n")):
                    image = apply(image, decode_record(line), value.base_offset + i)
        # That an entry is chosen is written down lazily, so the last ones are only known to be accepted. To take such
        # an entry over is always safe: nobody was told that it failed for good. To leave it out is not: it may have
        # been chosen, and answered.
        if not entry.is_chosen and value.kind is not Kind.NOP:
            unproven.append(position)
        position += 1
    unreached = tuple(sorted(later for later in merged if later > position))
    return replace(
        start,
        image=image,
        position=position,
        prefix=prefix,
        voters=voters,
        unproven=tuple(unproven),
        unreached=unreached,
    )


def _prefix_at(position: int, floors: Sequence[Prefix], merged: dict[int, Entry]) -> Prefix | None:
    """Returns the Paxos prefix (the log's state) before this position, computed from a log's first position; None if
    entries in between are missing."""
    for floor in sorted(floors, key=lambda floor: -floor.position):
        prefix = floor
        while prefix.position < position and (entry := merged.get(prefix.position)) is not None:
            prefix, _ = fold(prefix, entry.value)
        if prefix.position == position:
            return prefix
    return None
