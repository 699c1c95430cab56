"""The base of the faults that damage copies of batches: the run that they are part of, and the damage itself."""

from __future__ import annotations

import random
from collections.abc import Iterable

from tidelog.model.ids import PartitionId
from tidelog.sim.cluster.data_rot import CopyExtent, DataRot
from tidelog.sim.cluster.good_copies import Copy, GoodCopies
from tidelog.sim.cluster.ledger import Ledger
from tidelog.sim.cluster.world import World
from tidelog.sim.kit import rot

ZEROED_SHARE = 0.4
SECTOR_BYTES = 512


class CopyStrikes:
    """Base of the classes that carry out faults which damage copies and leave a good one elsewhere."""

    def __init__(self, world: World, ledger: Ledger, data_rot: DataRot) -> None:
        self._world = world
        self._ledger = ledger
        self._data_rot = data_rot
        self._copies = GoodCopies(world, ledger)

    def _damage(self, partition_id: PartitionId, copies: Iterable[Copy], rng: random.Random) -> None:
        """Damages these copies in drawn ways, and tells the ledger."""
        for copy in copies:
            damage(self._world, copy.extent, rng)
            self._ledger.rots(copy.node, partition_id)
            self._ledger.hurts(copy.node, partition_id)


def damage(world: World, extent: CopyExtent, rng: random.Random) -> None:
    """Damages a copy in a drawn way: flips a bit, or overwrites all of the copy or a sector of it with zeros."""
    medium, begin, end = world.medium(extent.node), extent.position, extent.position + extent.size
    if rng.random() >= ZEROED_SHARE:
        rot.flip_bit(medium, extent.path, rng.randrange(begin, end), rng.randrange(8))
    else:
        begin = rng.choice((begin, rng.randrange(begin, end)))
        size = min(end - begin, rng.choice((extent.size, SECTOR_BYTES)))
        rot.overwrite(medium, extent.path, begin, bytes(size))
    world.truth.note("damage", *extent)
