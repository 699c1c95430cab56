"""Faults of reads: sectors of one broker's disk give EIO until they are written again.

Sectors of a log are hit only if their batches are intact elsewhere; sectors of a catalog (index), metainfo (the file
with a log's identity) or snapshot, without which a replica may have to be taken for lost, only if the disk could do
without that replica. Of metainfo there are two copies: one of them may be hit at any time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from tidelog.model.ids import PartitionId
from tidelog.sim.cluster.blackout import blackout
from tidelog.sim.cluster.copy_strikes import CopyStrikes
from tidelog.sim.cluster.data_rot import CopyExtent
from tidelog.sim.cluster.metadata_strikes import METADATA
from tidelog.sim.cluster.scenario import Effects, Strike
from tidelog.sim.kit import rot
from tidelog.sim.kit.inode import SECTOR_BYTES
from tidelog.storage.log_manager import SNAPSHOTS, log_directory

CATALOG = ".catalog"
ONE_METAINFO = "metainfo.0"


class ReadStrikes(CopyStrikes):
    """Carries out the faults of reads; a fault's first node is the one whose disk is hit."""

    def effects(self) -> Effects:
        """Returns the functions that carry out the faults of this class, by the fault's name."""
        return {
            "unreadable log": self._log,
            "unreadable catalog": self._catalog,
            "unreadable metainfo": self._metainfo,
            "unreadable snapshot": self._snapshot,
        }

    async def _log(self, strike: Strike, rng: random.Random) -> None:
        node = self._data_rot.holder(strike, rng)
        async with blackout(self._world, strike, rng, (node,), written_back=(node,)):
            candidates = [
                (partition_id, copy)
                for partition_id in sorted(self._ledger.books)
                for copy in self._copies.committed(partition_id, node, is_journal=False)
                if self._copies.may_go(partition_id, [copy])
            ]
            if (drawn := self._world.draw(candidates, rng)) is None:
                return
            partition_id, copy = drawn
            self._ledger.rots(node, partition_id)
            self._ledger.hurts(node, partition_id)
            self._hit(node, copy.extent.path, copy.extent.position, copy.extent.size)

    async def _catalog(self, strike: Strike, rng: random.Random) -> None:
        node = self._data_rot.holder(strike, rng)
        async with blackout(self._world, strike, rng, (node,), written_back=(node,)):
            self._hit_one(node, [file for file in self._files_of_partitions(node) if CATALOG in file[1]], rng)

    async def _metainfo(self, strike: Strike, rng: random.Random) -> None:
        """Makes metainfo (the file with a log's identity) unreadable, as drawn: either one of the two copies that a
        partition or the metadata log has, or both copies of a partition whose replica is dispensable."""
        node = self._data_rot.holder(strike, rng)
        async with blackout(self._world, strike, rng, (node,)):
            files = self._world.medium(node).walk()
            if rng.random() < 0.5:
                paths = [path for path, file in files.items() if path.endswith(ONE_METAINFO) and file.durable]
                for path in rng.sample(paths, min(1, len(paths))):
                    self._hit(node, path, 0, len(files[path].durable))
            else:
                pairs = [
                    (partition_id, path)
                    for partition_id, path in self._files_of_partitions(node)
                    if path.endswith(ONE_METAINFO)
                ]
                self._hit_one(node, pairs, rng, "metainfo.1")

    async def _snapshot(self, strike: Strike, rng: random.Random) -> None:
        node = strike.nodes[0]
        async with blackout(self._world, strike, rng, (node,)):
            files = self._world.medium(node).walk()
            rooms = f"{SNAPSHOTS}/", METADATA
            paths = [path for path, file in files.items() if path.startswith(rooms) and file.durable]
            paths = [path for path in paths if path.startswith(SNAPSHOTS)] or paths
            if not paths or not self._world.may_destroy(node):
                self._world.truth.saw("fault withheld")
                return
            path = rng.choice(paths)
            self._world.destroy(node)
            self._hit(node, path, rng.randrange(len(files[path].durable)), SECTOR_BYTES)

    def _files_of_partitions(self, node: int) -> Iterator[tuple[PartitionId, str]]:
        """Yields the files of the partitions whose copy on this disk may be lost, since other replicas hold it
        too."""
        for path, file in self._world.medium(node).walk().items():
            for partition_id in self._ledger.books:
                is_its = path.startswith(f"{log_directory(partition_id)}/") and bool(file.durable)
                if is_its and self._ledger.may_rob(node, partition_id):
                    yield partition_id, path

    def _hit_one(
        self, node: int, files: list[tuple[PartitionId, str]], rng: random.Random, neighbour: str = ""
    ) -> None:
        """Draws one of the `files` and makes one sector of it unreadable. If `neighbour` names a file in the same
        directory, both files become unreadable as a whole instead."""
        if (drawn := self._world.draw(files, rng)) is None:
            return
        partition_id, path = drawn
        self._ledger.robs(node, partition_id)
        self._ledger.rots(node, partition_id)
        size = len(self._world.medium(node).walk()[path].durable)
        if not neighbour:
            self._hit(node, path, rng.randrange(size) // SECTOR_BYTES * SECTOR_BYTES, SECTOR_BYTES)
            return
        for unreadable in (path, f"{path.rpartition('/')[0]}/{neighbour}"):
            self._hit(node, unreadable, 0, size)

    def _hit(self, node: int, path: str, position: int, size: int) -> None:
        rot.make_unreadable(self._world.medium(node), path, position, size)
        self._world.truth.note("unreadable", *CopyExtent(node, path, position, size))
        self._world.truth.saw("sectors became unreadable")
