"""Faults that flip bits in committed batches while their broker is down.

A test that damages the last good copy cannot demand that the batch be there. So a *fault atlas* limits which batch may
rot: a committed one that is not in the last stretch of its log, where a log cannot tell rot from a torn tail; on one
broker of the run, the same one each time; and only if another member of ISR or ELR has an intact copy, whose disk is
not taken away from then on. Or, on purpose, one batch on every broker that has it: then no copy is readable until one
of them is restored. Which one, depends on the disks; none of them is taken away meanwhile (`Holders.may_rob`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from typing import NamedTuple

from tidelog.model.batch_header import iter_batches
from tidelog.model.errors import TidelogError
from tidelog.model.ids import PartitionId
from tidelog.sim.cluster.ledger import Ledger
from tidelog.sim.cluster.scenario import Effects, Strike
from tidelog.sim.cluster.shadows import Held, held
from tidelog.sim.cluster.world import World
from tidelog.sim.kit import rot
from tidelog.sim.kit.inode import FileNode
from tidelog.sim.kit.machine import Machine
from tidelog.sim.kit.medium import Medium
from tidelog.storage.log_manager import log_directory
from tidelog.storage.rows import Kind, RowCodec

FLIPS_MAX = 3


class CopyExtent(NamedTuple):
    """File, position and size in bytes of a batch on a broker's disk."""

    node: int
    path: str
    position: int
    size: int


class Flip(NamedTuple):
    """A bit of a copy that was flipped, and what is needed to restore it."""

    extent: CopyExtent
    medium: Medium
    position: int
    before: bytes
    left: bytes
    """Bytes of the copy after the flip."""

    def is_left(self, medium: Medium) -> bool:
        """Returns True if the broker's disk still has the copy with only that bit flipped. The disk may have been
        replaced, its directories lost or exchanged, the log truncated or repaired."""
        _, path, begin, size = self.extent
        file = medium.walk().get(path)
        return medium is self.medium and file is not None and _readable(file)[begin : begin + size] == self.left

    def undo(self) -> None:
        """Restores the byte that was damaged."""
        rot.overwrite(self.medium, self.extent.path, self.position, self.before)


class DataRot:
    """Carries out the faults that damage committed batches."""

    def __init__(self, world: World, ledger: Ledger) -> None:
        self._world = world
        self._ledger = ledger
        self._rotting: int | None = None

    def effects(self) -> Effects:
        """Returns the functions that carry out the faults of this class, by the fault's name."""
        return {"rot of a replica": self._of_a_replica, "rot of all copies": self._of_all_copies}

    def victim(self, strike: Strike) -> int:
        """Returns the node on whose disk the faults of this run damage data, always the same one: the first node that
        the first of these faults names."""
        self._rotting = strike.nodes[0] if self._rotting is None else self._rotting
        return self._rotting

    def holder(self, strike: Strike, rng: random.Random) -> int:
        """Returns the node on whose disk the faults of this run damage data (`victim`). If this is the first such fault
        and the node that it names holds no replica, another node is drawn."""
        if self._rotting is None:
            books = [partition_id for partition_id, book in self._ledger.books.items() if not book.is_volatile]
            holders = sorted({node for partition_id in books for node in self._ledger.replicas(partition_id)})
            if holders and strike.nodes[0] not in holders:
                self._rotting = rng.choice(holders)
        return self.victim(strike)

    def holders(self, strike: Strike, rng: random.Random) -> tuple[int, ...]:
        """Returns the nodes whose disks a fault damages: all that it names, if it is the first such fault of the run
        and names several; else the one node of the run (`holder`)."""
        is_first = self._rotting is None
        node = self.holder(strike, rng)
        return strike.nodes if is_first and len(strike.nodes) > 1 else (node,)

    async def _of_a_replica(self, strike: Strike, rng: random.Random) -> None:
        node = self.victim(strike)
        async with self._world.keepers[node].down(Machine.cut_power):
            for _ in range(1 + int(strike.amount * FLIPS_MAX)):
                candidates = [
                    (partition_id, extent)
                    for partition_id in sorted(self._ledger.books)
                    for batch, extent in self._batches(node, partition_id)
                    if self._is_elsewhere(node, partition_id, batch)
                ]
                if candidates:
                    partition_id, extent = rng.choice(candidates)
                    self._flip(partition_id, extent, rng)
            await asyncio.sleep(strike.lasts_s)

    async def _of_all_copies(self, strike: Strike, rng: random.Random) -> None:
        """Damages one batch on all replicas, and restores one of the copies later: that of an ISR or ELR member if
        there is one, since other disks may be damaged further."""
        nodes = list(self._world.swarm.nodes)
        async with AsyncExitStack() as downs:
            for node in nodes:
                await downs.enter_async_context(self._world.keepers[node].down(Machine.cut_power))
            extents = self._copies_of_one(rng)
            flips = [self._flip(partition_id, extent, rng) for partition_id, extent in extents]
            members = [node for partition_id, _ in extents[:1] for node in self._ledger.members(partition_id)]
        await asyncio.sleep(strike.lasts_s)
        for flip in sorted(flips, key=lambda flip: flip.extent.node not in members):
            if flip.is_left(self._world.medium(flip.extent.node)) and await self._puts_back(flip):
                self._world.truth.saw("good copy comes back")
                return

    async def _puts_back(self, flip: Flip) -> bool:
        """Restores the flipped bit while its broker is stopped; returns False if the copy is gone by then."""
        node = flip.extent.node
        async with self._world.keepers[node].down(Machine.cut_power):
            is_left = flip.is_left(self._world.medium(node))
            if is_left:
                flip.undo()
            return is_left

    # -- what may rot ------------------------------------------------------------------------------------------------

    def _batches(self, node: int, partition_id: PartitionId) -> list[tuple[Held, CopyExtent]]:
        """Returns the committed batches of a partition that are known to be durable on a node's disk, with their
        positions."""
        medium, book = self._world.medium(node), self._ledger.books[partition_id]
        if book.is_gone:
            return []
        files = durable_files(medium, log_directory(partition_id))
        durable = known_durable(partition_id, files)
        committed = {batch for batch in book.batches if batch.base >= book.start and batch.base in durable}
        segments = [path for path in files if path.endswith(".log")]
        return [copy for path in segments for copy in batches_in(node, path, files[path]) if copy[0] in committed]

    def _is_elsewhere(self, node: int, partition_id: PartitionId, batch: Held) -> bool:
        return any(
            member != node and self._ledger.has_safely(member, partition_id, batch)
            for member in self._ledger.members(partition_id)
        )

    def _copies_of_one(self, rng: random.Random) -> list[tuple[PartitionId, CopyExtent]]:
        """Returns the positions of one batch on all brokers that have it, drawn among those that every ISR and ELR
        member has."""
        partitions = [partition_id for partition_id in sorted(self._ledger.books) if self._ledger.members(partition_id)]
        if not partitions:
            return []
        partition_id = rng.choice(partitions)
        copies = [self._batches(node, partition_id) for node in self._ledger.members(partition_id)]
        common = [batch for batch, _ in copies[0] if all(batch in dict(others) for others in copies)]
        if not common:
            return []
        batch = rng.choice(common)
        everywhere = [dict(self._batches(node, partition_id)) for node in self._world.swarm.nodes]
        return [(partition_id, extents[batch]) for extents in everywhere if batch in extents]

    def _flip(self, partition_id: PartitionId, extent: CopyExtent, rng: random.Random) -> Flip:
        flip = turn_over(self._world.medium(extent.node), extent, rng)
        self._ledger.rots(extent.node, partition_id)
        self._world.truth.note("rot", extent.node, extent.path, flip.position)
        self._world.truth.saw("batch rotted")
        return flip


def turn_over(medium: Medium, extent: CopyExtent, rng: random.Random) -> Flip:
    """Flips one bit of a copy."""
    _, path, begin, size = extent
    position = begin + rng.randrange(size)
    durable = medium.walk()[path].durable
    before = bytes(durable[position : position + 1])
    rot.flip_bit(medium, path, position, rng.randrange(8))
    return Flip(extent, medium, position, before, bytes(durable[begin : begin + size]))


def durable_files(medium: Medium, directory: str) -> dict[str, bytes]:
    """Returns, by path, the durable content of the files directly in a directory, with zeros for unreadable sectors.

    Files of a subdirectory belong to another log: the journal of a Paxos replica lies below its log, numbers its
    entries as the log does its records, and is durable much earlier.
    """
    files = {path: file for path, file in medium.walk().items() if path.rpartition("/")[0] == directory}
    return {path: _readable(file) for path, file in files.items()}


def _readable(file: FileNode) -> bytes:
    content = bytearray(file.durable)
    for low, high in file.unreadable:
        end = min(high, len(content))
        content[low:end] = bytes(max(0, end - low))
    return bytes(content)


def known_durable(partition_id: PartitionId, files: Mapping[str, bytes]) -> set[int]:
    """Returns the base offsets of the batches that the segments' catalogs (indexes) record as durable, by a row written
    later."""
    codec = RowCodec(partition_id)
    catalogs = [content for path, content in files.items() if path.endswith(".catalog")]
    rows = [row for content in catalogs for row in codec.bodies(content) if row is not None]
    durable = max((row.durable for row in rows), default=0)
    return {row.base_offset for row in rows if row.kind == Kind.BATCH and row.sequence < durable}


def batches_in(node: int, path: str, content: bytes) -> list[tuple[Held, CopyExtent]]:
    """Returns the batches of a segment and their positions, up to the first damage."""
    copies = []
    position = 0
    with suppress(TidelogError):  # what stands behind another damage is left alone
        for batch in iter_batches(content):
            copies.append((held(batch), CopyExtent(node, path, position, len(batch.data))))
            position += len(batch.data)
    return copies
