"""Faults by pattern of damage: of each of the last four entries of a log, any copies are damaged but one (CTRL, FAST
'18).

A pattern is a number below 7^4: each of its digits, to the base of 7, says for one entry which of three replicas lose
their copy. So 2,401 scenarios try every pattern that leaves a good copy of each entry.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from tidelog.model.ids import PartitionId
from tidelog.sim.cluster.blackout import blackout
from tidelog.sim.cluster.copy_strikes import CopyStrikes, damage
from tidelog.sim.cluster.data_rot import DataRot
from tidelog.sim.cluster.good_copies import Copy
from tidelog.sim.cluster.ledger import Ledger
from tidelog.sim.cluster.scenario import Effects, Strike
from tidelog.sim.cluster.tail_strikes import TailStrikes
from tidelog.sim.cluster.world import World

ENTRIES = 4
MASKS = 7
"""Ways to damage some of three copies, or none, but not all."""
PATTERNS = MASKS**ENTRIES


class SweepStrikes(CopyStrikes):
    """Carries out patterns of damage. A fault's nodes are the replicas in the order of the pattern's bits, its amount
    is the pattern's number. A random scenario names one node, which comes first, and a fraction of all patterns."""

    def __init__(self, world: World, ledger: Ledger, data_rot: DataRot, tails: TailStrikes) -> None:
        super().__init__(world, ledger, data_rot)
        self._entries = tails.entries

    def effects(self) -> Effects:
        """Returns the functions that carry out the faults of this class, by the fault's name."""
        return {"pattern of a partition": self._partition, "pattern of the metadata log": self._metadata_log}

    async def _partition(self, strike: Strike, rng: random.Random) -> None:
        async with blackout(self._world, strike, rng, strike.nodes, written_back=self._world.swarm.nodes):
            partitions = [partition_id for partition_id in sorted(self._ledger.books) if self._last(partition_id)]
            if (partition_id := self._world.draw(partitions, rng)) is None:
                return
            hit = self._draw(partition_id, strike, _in_order(strike, self._ledger.replicas(partition_id)))
            self._damage(partition_id, hit, rng)
            self._ledger.guards(partition_id)
            self._world.truth.saw("pattern of damage", bool(hit))

    def _last(self, partition_id: PartitionId) -> list[int]:
        """Returns the base offsets of the last committed batches of a partition; none if nothing may be damaged."""
        copies = [
            copy
            for node in self._ledger.replicas(partition_id)
            for copy in self._copies.committed(partition_id, node, is_journal=False)
        ]
        return sorted({batch.base for copy in copies for batch in copy.batches})[-ENTRIES:]

    def _draw(self, partition_id: PartitionId, strike: Strike, nodes: Sequence[int]) -> list[Copy]:
        """Returns the copies that the pattern damages, leaving out entries that would have no good copy left."""
        hit: list[Copy] = []
        for base, mask in zip(self._last(partition_id), _masks(strike), strict=False):
            more = [
                copy
                for node in _nodes(nodes, mask)
                for is_journal in (False, True)
                for copy in self._copies.committed(partition_id, node, is_journal=is_journal)
                if any(batch.base == base for batch in copy.batches) and copy not in hit
            ]
            if self._copies.may_go(partition_id, [*hit, *more]):
                hit += more
        return hit

    async def _metadata_log(self, strike: Strike, rng: random.Random) -> None:
        async with blackout(self._world, strike, rng, strike.nodes):
            entries = {
                node: {entry: extent for extent, entry in self._entries(node)} for node in self._world.swarm.nodes
            }
            newest = sorted({entry for extents in entries.values() for entry in extents})[-ENTRIES:]
            # An old or robbed directory begins anew without its entries, and the mend of a damaged one may not be done.
            whole = [node for node in entries if self._world.is_whole(node)]
            for entry, mask in zip(newest, _masks(strike), strict=False):
                hit = [node for node in _nodes(_in_order(strike, [*entries]), mask) if entry in entries[node]]
                if any(entry in entries[node] for node in whole if node not in hit):
                    for node in hit:
                        damage(self._world, entries[node][entry], rng)
                        self._world.destroy(node)
                        self._world.truth.saw("pattern of damage")


def _masks(strike: Strike) -> list[int]:
    """Returns, for each entry, a bit mask of the replicas whose copy is damaged."""
    number = int(strike.amount if strike.amount >= 1 else strike.amount * PATTERNS)
    return [number // MASKS**entry % MASKS for entry in range(ENTRIES)]


def _in_order(strike: Strike, replicas: Sequence[int]) -> list[int]:
    """Returns the replicas in the order of the pattern's bits: the fault's nodes first."""
    first = [node for node in strike.nodes if node in replicas]
    return [*first, *(node for node in replicas if node not in first)]


def _nodes(nodes: Sequence[int], mask: int) -> list[int]:
    return [node for number, node in enumerate(nodes) if mask >> number & 1]
