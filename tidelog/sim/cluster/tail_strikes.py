"""Faults that damage the last batch of a log, before a later write has recorded it as durable.

All brokers die just after an acknowledgement, and the last batch that a disk has of a partition has a bit flipped, or
is zeroed: in a log, in the journal of a Paxos replica, in both, or the last entry of the metadata log. The catalog row
(index entry) of the batch stays intact, so this is no torn end. An intact copy is left on another disk: nothing may be
lost.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial

from tidelog.model.ids import PartitionId
from tidelog.sim.cluster.blackout import blackout
from tidelog.sim.cluster.copy_strikes import CopyStrikes, damage
from tidelog.sim.cluster.data_rot import CopyExtent
from tidelog.sim.cluster.good_copies import Copy
from tidelog.sim.cluster.journal_rot import entries_in
from tidelog.sim.cluster.metadata_strikes import METADATA
from tidelog.sim.cluster.scenario import Effects, Strike
from tidelog.sim.kit import rot
from tidelog.storage.log_manager import log_directory
from tidelog.storage.slot_entries import EntryKind, decode_entry

PAIR = 2


class TailStrikes(CopyStrikes):
    """Carries out the faults at the end of a log; a fault's nodes are those whose copies are damaged."""

    def effects(self) -> Effects:
        """Returns the functions that carry out the faults of this class, by the fault's name."""
        return {
            "tail of a log": partial(self._of_a_partition, in_journals=(False,)),
            "tail of a journal": partial(self._of_a_partition, in_journals=(True,)),
            "tail of log and journal": partial(self._of_a_partition, in_journals=(False, True)),
            "tail beside a missing directory": self._beside_a_missing_directory,
            "tail of the metadata log": self._of_the_metadata_log,
        }

    # -- partitions --------------------------------------------------------------------------------------------------

    async def _of_a_partition(self, strike: Strike, rng: random.Random, *, in_journals: tuple[bool, ...]) -> None:
        victims = self._data_rot.holders(strike, rng)
        async with blackout(self._world, strike, rng, victims, written_back=victims):
            drawn = {
                partition_id: self._last_copies(partition_id, victims, in_journals)
                for partition_id in sorted(self._ledger.books)
            }
            picked = self._copies.pick(drawn, rng)
            if picked is None:
                return
            partition_id, copies = picked
            self._damage(partition_id, copies, rng)
            self._world.truth.saw("last batch damaged")

    async def _beside_a_missing_directory(self, strike: Strike, rng: random.Random) -> None:
        """Removes the directory of a partition on the first node, and damages its last batch on the second: the first
        node must not count as never having had the batch."""
        victims = self._data_rot.holders(strike, rng)
        async with blackout(self._world, strike, rng, victims, written_back=victims):
            candidates = [] if len(victims) < PAIR else self._emptiable(*victims)
            if (drawn := self._world.draw(candidates, rng)) is None:
                return
            partition_id, copy = drawn
            rot.lose_directory(self._world.medium(victims[0]), log_directory(partition_id))
            self._ledger.robs(victims[0], partition_id)
            self._damage(partition_id, [copy], rng)
            self._world.truth.saw("last batch damaged beside an emptied replica")

    def _emptiable(self, emptied: int, damaged: int) -> list[tuple[PartitionId, Copy]]:
        """Returns partitions, with their last batch on the node `damaged`, whose replica on the node `emptied` may be
        lost; a third replica has the batch."""
        candidates: list[tuple[PartitionId, Copy]] = []
        for partition_id in sorted(self._ledger.books):
            lost = self._copies.committed(partition_id, emptied, is_journal=False)
            last = self._copies.committed(partition_id, damaged, is_journal=False)[-1:]
            is_held = rot.has_directory(self._world.medium(emptied), log_directory(partition_id))
            may_go = is_held and self._ledger.may_rob(emptied, partition_id)
            if last and may_go and self._copies.may_go(partition_id, [*lost, *last]):
                candidates.append((partition_id, last[0]))
        return candidates

    def _last_copies(
        self, partition_id: PartitionId, victims: tuple[int, ...], in_journals: tuple[bool, ...]
    ) -> list[Copy]:
        """Returns the victims' copies of the partition's last committed batch."""
        copies = [
            copy
            for node in victims
            for is_journal in in_journals
            for copy in self._copies.committed(partition_id, node, is_journal=is_journal)[-1:]
        ]
        newest = max((copy.batches[-1].base for copy in copies), default=0)
        return [copy for copy in copies if copy.batches[-1].base == newest]

    # -- the metadata log --------------------------------------------------------------------------------------------

    async def _of_the_metadata_log(self, strike: Strike, rng: random.Random) -> None:
        async with blackout(self._world, strike, rng, strike.nodes):
            entries = {node: list(self.entries(node)) for node in self._world.swarm.nodes}
            victims = [node for node in strike.nodes if entries[node]]
            sound = {entry for node in self._sources(victims) for _, entry in entries[node]}
            hit = [node for node in victims if entries[node][-1][1] in sound and self._may_hit(strike, node)]
            for node in hit:
                damage(self._world, entries[node][-1][0], rng)
                self._world.destroy(node)
            self._world.truth.saw("last entry damaged" if hit else "fault withheld")

    def _sources(self, victims: list[int]) -> list[int]:
        """Returns the nodes other than `victims` whose disks are not known to have lost anything. Their metadata logs
        are complete; an old or emptied directory would be started over without its entries."""
        return [node for node in self._world.swarm.nodes if node not in victims and self._world.is_whole(node)]

    def _may_hit(self, strike: Strike, node: int) -> bool:
        """Returns True if a node's metadata log may be damaged: its disk may lose data, or the fault hits several
        nodes, which happens once in a run and was checked for a good copy."""
        return len(strike.nodes) > 1 or self._world.may_destroy(node)

    def entries(self, node: int) -> Iterator[tuple[CopyExtent, tuple[int, bytes, bytes]]]:
        """Yields the slots of a node's metadata log in the order of writing: position of each in its file, and its log
        position, digest and payload."""
        files = self._world.medium(node).walk()
        rooms = {path.partition("/")[0] for path in files if path.startswith(METADATA)}
        newest = max(rooms, key=lambda room: int(room.partition("-")[2] or 1), default="")
        for path, file in files.items():
            if path.startswith(f"{newest}/") and path.endswith(".log"):
                for position, entry in entries_in(path, bytes(file.durable)):
                    data = bytes(entry.data)
                    head, payload = decode_entry(data) or (None, None)
                    if head is not None and head.kind is EntryKind.SLOT:
                        yield CopyExtent(node, path, position, len(data)), (head.position, head.digest, payload or b"")
