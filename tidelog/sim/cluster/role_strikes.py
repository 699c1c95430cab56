"""Faults that hit a role: a partition's leader, its followers, the active controller.

Most bugs need one certain broker to be away at one certain time, and a node drawn blindly is mostly another one. The
broker with the role is looked up in the true metadata when the fault begins; `amount` selects the partition.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial

from tidelog.model.cluster import NO_LEADER, PartitionInfo
from tidelog.model.names import OFFSETS_TOPIC
from tidelog.sim.cluster.scenario import Effects, Strike
from tidelog.sim.cluster.traffic import DATA
from tidelog.sim.cluster.world import World
from tidelog.sim.kit.machine import Machine

SESSION = "broker.session.timeout.ms"
SESSION_MS = 9_000
"""Default of the setting `broker.session.timeout.ms`, in ms."""
STEP_S_MAX = 3.0

Role = Callable[[Strike], int | None]
"""Function that returns the node which has a role when the fault begins; None if there is none."""


class RoleStrikes:
    """Carries out the faults that hit a role."""

    def __init__(self, world: World) -> None:
        self._world = world

    def effects(self) -> Effects:
        """Returns the functions that carry out the faults of this class, by the fault's name."""
        return {
            "leader dies": partial(self._dies, self._leader),
            "leader sleeps": partial(self._sleeps, self._leader),
            "leader without followers": self._leader_without_followers,
            "leader without controller": self._leader_without_controller,
            "last one leaves": self._last_one_leaves,
            "lame follower": self._lame_follower,
            "controller dies": partial(self._dies, self._controller),
            "controller sleeps": partial(self._sleeps, self._controller),
            "controller alone": self._controller_alone,
        }

    # -- any role ----------------------------------------------------------------------------------------------------

    async def _dies(self, role: Role, strike: Strike, rng: random.Random) -> None:
        """Ends the broker with a role, by a killed process or a power cut, and keeps it down for a while."""
        if (node := role(strike)) is not None:
            async with self._world.keepers[node].down(rng.choice((Machine.kill, Machine.cut_power))):
                await asyncio.sleep(strike.lasts_s)

    async def _sleeps(self, role: Role, strike: Strike, rng: random.Random) -> None:
        """Pauses the broker with a role for one to three session timeouts, so that it resumes as a zombie."""
        if (node := role(strike)) is not None:
            machine = self._world.machine(node)
            machine.pause()
            await asyncio.sleep(min(STEP_S_MAX, self._session_s * (1.0 + 2 * rng.random())))
            machine.resume()

    # -- leaders -----------------------------------------------------------------------------------------------------

    async def _leader_without_followers(self, strike: Strike, rng: random.Random) -> None:
        """Cuts a leader off from its followers, while it still reaches the controller."""
        if (info := self._led(strike)) is not None:
            controller = self._world.truth.image.controller_id
            followers = [int(node) for node in info.replicas if node not in (info.leader, controller)]
            await self._world.cut(self._world.ways(int(info.leader), followers), strike.lasts_s)

    async def _leader_without_controller(self, strike: Strike, rng: random.Random) -> None:
        """Cuts a leader off from the controller, while its followers still reach it."""
        if (info := self._led(strike)) is not None:
            controller = int(self._world.truth.image.controller_id)
            others = [node for node in self._world.swarm.nodes if node not in info.replicas or node == controller]
            await self._world.cut(self._world.ways(int(info.leader), others), strike.lasts_s)

    async def _last_one_leaves(self, strike: Strike, rng: random.Random) -> None:
        """Stops the followers one by one, then the leader, which alone has every record; they come back before it."""
        if (info := self._led(strike)) is None:
            return
        leader = int(info.leader)
        async with AsyncExitStack() as followers:
            for node in map(int, info.replicas):
                if node != leader:
                    await followers.enter_async_context(self._world.keepers[node].down(Machine.kill))
            await self._until_alone(info)
            come_back = followers.pop_all()
        async with come_back, self._world.keepers[leader].down(rng.choice((Machine.kill, Machine.cut_power))):
            await come_back.aclose()
            await asyncio.sleep(2 * strike.lasts_s)

    async def _until_alone(self, info: PartitionInfo) -> None:
        deadline_s = self._world.true_time + STEP_S_MAX
        while self._world.true_time < deadline_s:
            await asyncio.sleep(self._session_s / 10)
            now = next((partition for partition in self._partitions() if partition.replicas == info.replicas), None)
            if now is None or now.isr == (info.leader,) or now.leader != info.leader:
                return

    async def _lame_follower(self, strike: Strike, rng: random.Random) -> None:
        """Delays what is sent to a follower, so that it drops out of the ISR and comes back, again and again."""
        info = self._led(strike)
        followers = [] if info is None else [int(node) for node in info.replicas if node != info.leader]
        if info is None or not followers:
            return
        link = self._world.link(int(info.leader), rng.choice(followers))
        for _ in range(1 + int(strike.amount * 4)):
            link.clog()
            await asyncio.sleep(strike.lasts_s * (0.5 + rng.random()))
            link.unclog()
            await asyncio.sleep(strike.lasts_s * 0.5 * rng.random())

    # -- controllers -------------------------------------------------------------------------------------------------

    async def _controller_alone(self, strike: Strike, rng: random.Random) -> None:
        """Cuts the controller off from the other voters; brokers that do not vote still reach it."""
        if (node := self._controller(strike)) is not None:
            others = [int(voter.node_id) for voter in self._world.voters if voter.node_id != node]
            await self._world.cut(self._world.ways(node, others), strike.lasts_s)

    # -- who is who --------------------------------------------------------------------------------------------------

    @property
    def _session_s(self) -> float:
        return int(self._world.swarm.settings.get(SESSION, SESSION_MS)) / 1_000

    def _leader(self, strike: Strike) -> int | None:
        info = self._led(strike)
        return None if info is None else int(info.leader)

    def _controller(self, strike: Strike) -> int | None:
        node = int(self._world.truth.image.controller_id)
        return node if node in self._world.keepers else None

    def _partitions(self) -> list[PartitionInfo]:
        """Returns the partitions with a leader, of topics with data and of the offsets topic."""
        topics = [
            topic
            for topic in self._world.truth.image.topics.values()
            if topic.name.startswith(DATA) or topic.name == OFFSETS_TOPIC
        ]
        partitions = [info for topic in topics for info in topic.partitions]
        return [info for info in partitions if info.leader != NO_LEADER]

    def _led(self, strike: Strike) -> PartitionInfo | None:
        partitions = self._partitions()
        return partitions[int(strike.amount * len(partitions)) % len(partitions)] if partitions else None
