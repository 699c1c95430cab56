"""Faults of disks: errors, full and slow disks, flipped bits, replaced and restored disks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from tidelog.sim.cluster.scenario import Effects, Strike
from tidelog.sim.cluster.world import World
from tidelog.sim.kit import rot
from tidelog.sim.kit.faults import NO_FAULTS, FaultRates
from tidelog.sim.kit.machine import Machine
from tidelog.sim.kit.medium import CAPACITY_BYTES

METADATA = "metadata/"
SLOW_FACTOR = 30.0
STUCK_S = 1.0


class DiskStrikes:
    """Carries out the faults of disks."""

    def __init__(self, world: World) -> None:
        self._world = world

    def effects(self) -> Effects:
        """Returns the functions that carry out the faults of this class, by the fault's name."""
        delay_s = self._world.swarm.disk_delay_s
        return {
            "sync error": lambda strike, _: self._bad_disk(strike, FaultRates(sync_error=0.05 + strike.amount * 0.5)),
            "write error": lambda strike, _: self._bad_disk(strike, FaultRates(write_error=0.02 + strike.amount * 0.3)),
            "full disk": lambda strike, _: self._fill(strike.nodes[:1], strike),
            "full disks": lambda strike, _: self._fill(self._world.swarm.nodes, strike),
            "slow disk": lambda strike, _: self._slow_down(strike, delay_s * (1 + strike.amount * SLOW_FACTOR)),
            "stuck disk": lambda strike, _: self._slow_down(strike, STUCK_S * (0.1 + strike.amount)),
            "rot": self._rot,
            "wipe": self._wipe,
            "restore": self._restore,
        }

    # -- errors ------------------------------------------------------------------------------------------------------

    async def _bad_disk(self, strike: Strike, faults: FaultRates) -> None:
        """Gives a disk fault rates for a while, then restarts its broker as an operator would, since its logs may be
        offline."""
        node = strike.nodes[0]
        self._world.medium(node).faults = faults
        await asyncio.sleep(strike.lasts_s)
        self._world.medium(node).faults = NO_FAULTS
        async with self._world.keepers[node].down(Machine.kill):
            await asyncio.sleep(0.1)

    async def _fill(self, nodes: Sequence[int], strike: Strike) -> None:
        media = [self._world.medium(node) for node in nodes]
        for medium in media:
            medium.capacity_bytes = medium.used_bytes + int(strike.amount * 3_000)
        await asyncio.sleep(strike.lasts_s)
        for medium in media:
            medium.capacity_bytes = CAPACITY_BYTES

    async def _slow_down(self, strike: Strike, mean_s: float) -> None:
        machine = self._world.machine(strike.nodes[0])
        machine.change_disk_delay(mean_s)
        await asyncio.sleep(strike.lasts_s)
        machine.change_disk_delay(self._world.swarm.disk_delay_s)

    # -- losses ------------------------------------------------------------------------------------------------------

    async def _rot(self, strike: Strike, rng: random.Random) -> None:
        node = strike.nodes[0]
        async with self._world.keepers[node].down(Machine.cut_power):
            medium = self._world.medium(node)
            paths = [path for path, file in medium.walk().items() if path.startswith(METADATA) and file.durable]
            if paths and self._takes(node):
                path = rng.choice(paths)
                rot.flip_bit(medium, path, rng.randrange(len(medium.walk()[path].durable)), rng.randrange(8))
                self._world.truth.saw("metadata rotted")
            await asyncio.sleep(strike.lasts_s)

    async def _wipe(self, strike: Strike, rng: random.Random) -> None:
        keeper = self._world.keepers[strike.nodes[0]]
        async with keeper.down(Machine.cut_power):
            if self._takes(keeper.node):
                keeper.machine.replace_disk()
                self._world.point_to_cluster(keeper.node)
                self._world.truth.saw("disk wiped")
            await asyncio.sleep(strike.lasts_s)

    async def _restore(self, strike: Strike, rng: random.Random) -> None:
        keeper = self._world.keepers[strike.nodes[0]]
        async with keeper.down(Machine.kill):
            backup = keeper.machine.back_up()
        await asyncio.sleep(strike.lasts_s)
        async with keeper.down(Machine.kill):
            is_voter = keeper.node in self._world.swarm.founders or self._world.truth.ever_voted(keeper.node)
            if not is_voter and not self._world.swarm.traffic.topics:
                keeper.machine.restore(backup)
                self._world.truth.saw("backup restored")

    def _takes(self, node: int) -> bool:
        """Returns True if a fault may make this node's disk lose data, because a majority of the voters remembers
        everything; notes the loss then. Otherwise counts the fault as withheld, and returns False."""
        if not self._world.may_destroy(node):
            self._world.truth.saw("fault withheld")
            return False
        self._world.destroy(node)
        return True
