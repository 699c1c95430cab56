"""A partition's directory that is not what the broker left there: a volume that was not mounted, a repair by fsck, an
operator's hand.

It happens while all brokers are down, to one of them, and only if the others still have everything: another sound
member of ISR or ELR, or a majority that remembers. What is left may be read by nobody as a replica in good standing.
"""

from __future__ import annotations

import random

from tidelog.model.ids import PartitionId
from tidelog.sim.cluster.blackout import blackout
from tidelog.sim.cluster.data_rot import DataRot
from tidelog.sim.cluster.ledger import Ledger
from tidelog.sim.cluster.scenario import Effects, Strike
from tidelog.sim.cluster.world import World
from tidelog.sim.kit import rot
from tidelog.storage.log_manager import log_directory


class DirectoryStrikes:
    """The strikes of one run. Their first node is the one whose disk is hit."""

    def __init__(self, world: World, ledger: Ledger, data_rot: DataRot) -> None:
        self._world = world
        self._ledger = ledger
        self._data_rot = data_rot

    def effects(self) -> Effects:
        """Returns them by kind."""
        return {"directory missing": self._missing}

    async def _missing(self, strike: Strike, rng: random.Random) -> None:
        node = self._data_rot.victim(strike)
        async with blackout(self._world, strike, rng, (node,)):
            found = self._robbable(node)
            if not found:
                self._world.truth.saw("fault withheld")
                return
            partition_id = rng.choice(found)
            rot.lose_directory(self._world.machine(node).disk.medium, log_directory(partition_id))
            self._ledger.robs(node, partition_id)
            self._world.truth.note("directory missing", node, partition_id)
            self._world.truth.saw("directory lost")

    def _robbable(self, node: int) -> list[PartitionId]:
        """Returns partitions of which this disk may lose everything, and has something."""
        medium = self._world.machine(node).disk.medium
        return [
            partition_id
            for partition_id in sorted(self._ledger.books)
            if self._ledger.may_rob(node, partition_id) and rot.has_directory(medium, log_directory(partition_id))
        ]
