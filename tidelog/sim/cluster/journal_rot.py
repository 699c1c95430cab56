"""Flipped bits and unreadable sectors in the journals of Paxos replicas while their broker is down.

The same limits hold as for batches (`data_rot.py`), on the same broker:

- *a payload* may rot, if another member has those batches in its log, intact and durable. The slot is faulty from then
  on: its replica must say so, never that the slot is empty.
- *any part* of the journal (entry heads, catalog rows, promises) may rot, if a majority of all possible voters is left
  without it. The replica must notice what it has forgotten, and never vote under that engine id again.

Neither hits an entry that the journal does not know to be durable, nor the rows that tell how far it is durable: there
a replica could not tell damage from a torn end, and would forget without noticing, which no majority of the others
repairs.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from tidelog.broker.consensus.payloads import digest_of
from tidelog.broker.consensus.stored import decode_identity
from tidelog.model.batch_header import RecordBatch, iter_batches
from tidelog.model.errors import TidelogError
from tidelog.model.ids import PartitionId
from tidelog.replication.paxos.state import Kind
from tidelog.sim.cluster.data_rot import DataRot, durable_files, known_durable
from tidelog.sim.cluster.ledger import Ledger
from tidelog.sim.cluster.scenario import Effects, Strike
from tidelog.sim.cluster.shadows import Held, held
from tidelog.sim.cluster.world import World
from tidelog.sim.kit import rot
from tidelog.sim.kit.machine import Machine
from tidelog.storage.log_manager import JOURNAL, log_directory
from tidelog.storage.rows import ROW_BYTES, RowCodec
from tidelog.storage.slot_entries import EntryKind, decode_entry

JOURNAL_ROT = "rot of a journal"
FLIPS_MAX = 3
UNREADABLE_SHARE = 0.3
PAYLOADS_BELOW = 0.6
"""Bound on a fault's `amount`: below it only payloads are damaged."""


class Payload(NamedTuple):
    """Position and size of a payload in a file, and its batches."""

    path: str
    position: int
    size: int
    batches: list[Held]


class Piece(NamedTuple):
    """Range of bytes in a file, `end` exclusive."""

    path: str
    begin: int
    end: int


class JournalRot:
    """Carries out the faults that damage journals."""

    def __init__(self, world: World, ledger: Ledger, data_rot: DataRot) -> None:
        self._world = world
        self._ledger = ledger
        self._data_rot = data_rot

    def effects(self) -> Effects:
        """Returns the functions that carry out the faults of this class, by the fault's name."""
        return {JOURNAL_ROT: self._rot}

    async def _rot(self, strike: Strike, rng: random.Random) -> None:
        node = self._data_rot.victim(strike)
        async with self._world.keepers[node].down(Machine.cut_power):
            for _ in range(rng.randint(1, FLIPS_MAX)):
                if strike.amount < PAYLOADS_BELOW:
                    self._of_a_payload(node, rng)
                else:
                    self._of_anything(node, rng)
            await asyncio.sleep(strike.lasts_s)

    # -- payloads ----------------------------------------------------------------------------------------------------

    def _of_a_payload(self, node: int, rng: random.Random) -> None:
        candidates = [
            (partition_id, payload)
            for partition_id in sorted(self._ledger.majorities.logs)
            for payload in payloads_in(partition_id, self._files(node, partition_id))
            if self._is_elsewhere(node, partition_id, payload)
        ]
        if not candidates:
            return
        partition_id, payload = rng.choice(candidates)
        medium = self._world.medium(node)
        if rng.random() < UNREADABLE_SHARE:
            rot.make_unreadable(medium, payload.path, payload.position, payload.size)
        else:
            rot.flip_bit(medium, payload.path, payload.position + rng.randrange(payload.size), rng.randrange(8))
        self._note(node, partition_id, payload.path, "payload")

    def _files(self, node: int, partition_id: PartitionId) -> dict[str, bytes]:
        return durable_files(self._world.medium(node), f"{log_directory(partition_id)}/{JOURNAL}")

    def _is_elsewhere(self, node: int, partition_id: PartitionId, payload: Payload) -> bool:
        others = [member for member in self._ledger.members(partition_id) if member != node]
        return any(
            all(self._ledger.has_safely(member, partition_id, batch) for batch in payload.batches) for member in others
        )

    # -- anything ----------------------------------------------------------------------------------------------------

    def _of_anything(self, node: int, rng: random.Random) -> None:
        candidates = [
            (partition_id, pieces)
            for partition_id in sorted(self._ledger.majorities.logs)
            if self._ledger.may_forget(partition_id, node)
            for pieces in pieces_in(partition_id, self._files(node, partition_id))
        ]
        if (drawn := self._world.draw(candidates, rng)) is None:
            return
        partition_id, pieces = drawn
        path, begin, end = rng.choice(pieces)
        rot.flip_bit(self._world.medium(node), path, rng.randrange(begin, end), rng.randrange(8))
        self._ledger.forgets(partition_id, node)
        self._note(node, partition_id, path, "anything")

    def _note(self, node: int, partition_id: PartitionId, path: str, what: str) -> None:
        self._ledger.rots(node, partition_id)
        self._world.truth.note("journal rots", node, path, what)
        self._world.truth.saw(f"journal rotted: {what}")


def payloads_in(
    partition_id: PartitionId, files: Mapping[str, bytes], *, is_known_durable: bool = True
) -> Iterator[Payload]:
    """Yields the payloads that hold batches, of all entries or only of those known to be durable. Entries below the
    journal's floor are left out: their bytes may remain, but the replica has truncated them."""
    durable, floor = known_durable(partition_id, files), floor_of(files)
    for path, content in files.items():
        for position, entry in entries_in(path, content):
            data = bytes(entry.data)
            is_meant = entry.header.base_offset in durable or not is_known_durable
            for payload in payload_of(data, floor) if is_meant else ():
                batches = [held(batch) for batch in iter_batches(payload)]
                yield Payload(path, position + data.rindex(payload), len(payload), batches)


def pieces_in(partition_id: PartitionId, files: Mapping[str, bytes]) -> Iterator[list[Piece]]:
    """Yields the pieces of a journal's files that may rot, for each file that has any."""
    durable = known_durable(partition_id, files)
    rows = {
        path: list(RowCodec(partition_id).bodies(content))
        for path, content in files.items()
        if path.endswith(".catalog")
    }
    newest = max((row.durable for bodies in rows.values() for row in bodies if row is not None), default=0)
    for path, content in files.items():
        if path in rows:
            slots = [slot for slot, row in enumerate(rows[path]) if row is None or row.durable < newest]
            pieces = [Piece(path, slot * ROW_BYTES, (slot + 1) * ROW_BYTES) for slot in slots]
        elif path.endswith(".log"):
            entries = [(at, entry) for at, entry in entries_in(path, content) if entry.header.base_offset in durable]
            pieces = [Piece(path, at, at + len(entry.data)) for at, entry in entries]
        else:
            pieces = [Piece(path, 0, len(content))] if content else []
        if pieces:
            yield pieces


def entries_in(path: str, content: bytes) -> Iterator[tuple[int, RecordBatch]]:
    """Yields the entries of a segment file with their positions, up to the first damage; none for other files."""
    position = 0
    with suppress(TidelogError):  # what stands behind another damage is left alone
        for entry in iter_batches(content) if path.endswith(".log") else ():
            yield position, entry
            position += len(entry.data)


def floor_of(files: Mapping[str, bytes]) -> int:
    """Returns the log position below which the journal's entries are truncated."""
    decoded = (decode_entry(bytes(entry.data)) for path in files for _, entry in entries_in(path, files[path]))
    heads = [parts[0] for parts in decoded if parts is not None]
    return max((head.position for head in heads if head.kind is EntryKind.FLOOR), default=0)


def payload_of(data: bytes, floor: int) -> Iterator[bytes]:
    """Yields the payload of an entry, if it is an intact value with batches at or above the floor."""
    head, payload = decode_entry(data) or (None, None)
    if head is None or not payload or head.kind is not EntryKind.SLOT or head.position < floor:
        return
    if digest_of(payload) != head.digest:
        return  # a broker has no use for its sound batches either: the digest is the whole value's
    with suppress(ValueError):  # rotten already
        if decode_identity(head.content, head.digest).value.kind is Kind.APPEND:
            yield payload
