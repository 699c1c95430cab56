"""Logs and journals of a Paxos partition are hit apart: a batch is bad in all of one kind, and whole in the other.

Either is enough to have it back: a journal gives it to the logs, a log to the journals.
"""

from __future__ import annotations

import random

from tidelog.model.ids import PartitionId
from tidelog.sim.cluster.blackout import blackout
from tidelog.sim.cluster.good_copies import Copy, GoodCopies
from tidelog.sim.cluster.ledger import Ledger
from tidelog.sim.cluster.scenario import Effects, Strike
from tidelog.sim.cluster.tail_strikes import damage
from tidelog.sim.cluster.world import World
from tidelog.sim.kit import rot

LAST_SHARE = 0.3
"""The part of the strikes that hit the last batch, which nothing vouches for yet."""


class ApartStrikes:
    """The strikes of one run."""

    def __init__(self, world: World, ledger: Ledger) -> None:
        self._world = world
        self._ledger = ledger
        self._copies = GoodCopies(world, ledger)

    def effects(self) -> Effects:
        """Returns them by kind."""
        return {"all logs and no journal": self._all_logs, "all journals and no log": self._all_journals}

    async def _all_logs(self, strike: Strike, rng: random.Random) -> None:
        await self._hit(strike, rng, is_journal=False)

    async def _all_journals(self, strike: Strike, rng: random.Random) -> None:
        await self._hit(strike, rng, is_journal=True)

    async def _hit(self, strike: Strike, rng: random.Random, *, is_journal: bool) -> None:
        async with blackout(self._world, strike, rng, strike.nodes):
            for node in self._world.swarm.nodes:
                rot.write_back(self._copies.medium(node))
            drawn = {one: self._draw(one, rng, is_journal=is_journal) for one in sorted(self._ledger.majorities.logs)}
            picked = self._copies.pick(drawn, rng)
            if picked is None:
                return
            partition_id, copies = picked
            for copy in copies:
                damage(self._world, copy.extent, rng)
                self._ledger.rots(copy.node, partition_id)
            self._ledger.guards(partition_id)
            self._world.truth.saw("logs and journals hit apart")

    def _draw(self, partition_id: PartitionId, rng: random.Random, *, is_journal: bool) -> list[Copy]:
        """Returns all copies that logs, or journals, have of one batch."""
        copies = [
            copy
            for node in self._ledger.replicas(partition_id)
            for copy in self._copies.committed(partition_id, node, is_journal=is_journal)
        ]
        batches = sorted({batch for copy in copies for batch in copy.batches})
        if not batches:
            return []
        hit = batches[-1] if rng.random() < LAST_SHARE else rng.choice(batches)
        return [copy for copy in copies if hit in copy.batches]
