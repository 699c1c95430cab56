"""Faults of the network between brokers: cuts, delays, broken connections, repeated frames."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from tidelog.sim.cluster.scenario import Effects, Strike
from tidelog.sim.cluster.world import World
from tidelog.sim.kit.network_link import Link

FLAPS_MAX = 20
LANES_MAX = 6


class NetworkStrikes:
    """Carries out the faults of the network."""

    def __init__(self, world: World) -> None:
        self._world = world

    def effects(self) -> Effects:
        """Returns the functions that carry out the faults of this class, by the fault's name."""
        return {
            "isolate": lambda strike, _: self._separate(strike.nodes[:1], strike.lasts_s),
            "split": lambda strike, _: self._separate(strike.nodes, strike.lasts_s),
            "bridge": self._bridge,
            "rival majorities": self._rival_majorities,
            "cut one way": self._cut_one_way,
            "deafen": self._deafen,
            "flap": self._flap,
            "clog": self._clog,
            "swizzle": self._swizzle,
            "slow network": self._slow_network,
            "reset": self._reset,
            "lose answers": self._lose_answers,
            "break frames": self._break_frames,
            "repeat frames": self._repeat_frames,
            "late frames": self._slow_network,
            "lane breaks": self._break_lane,
            "lane stalls": self._stall_lane,
        }

    # -- cuts --------------------------------------------------------------------------------------------------------

    async def _separate(self, group: Sequence[int], lasts_s: float) -> None:
        others = [node for node in self._world.swarm.nodes if node not in group]
        await self._world.cut([link for node in group for link in self._world.ways(node, others)], lasts_s)

    async def _cut(self, ways: Iterable[tuple[int, ...]], lasts_s: float) -> None:
        await self._world.cut([self._world.link(*way) for way in ways], lasts_s)

    async def _bridge(self, strike: Strike, rng: random.Random) -> None:
        """Splits the brokers into two halves that only one further node reaches."""
        _, *others = rng.sample(self._world.swarm.nodes, len(self._world.swarm.nodes))
        half = others[: len(others) // 2]
        ways = [(near, far) for near in half for far in others if far not in half]
        await self._cut([*ways, *((far, near) for near, far in ways)], strike.lasts_s)

    async def _rival_majorities(self, strike: Strike, rng: random.Random) -> None:
        """Leaves each node connected to two others only, its neighbours in a circle."""
        nodes = rng.sample(self._world.swarm.nodes, len(self._world.swarm.nodes))
        count = len(nodes)
        distances = [(i, j, (i - j) % count) for i in range(count) for j in range(count) if i != j]
        ways = [(nodes[i], nodes[j]) for i, j, distance in distances if distance not in (1, count - 1)]
        await self._cut(ways, strike.lasts_s)

    async def _cut_one_way(self, strike: Strike, rng: random.Random) -> None:
        if len(strike.nodes) > 1:
            await self._cut([strike.nodes[:2]], strike.lasts_s)

    async def _deafen(self, strike: Strike, rng: random.Random) -> None:
        node = strike.nodes[0]
        others = [peer for peer in self._world.swarm.nodes if peer != node]
        is_deaf = strike.amount < 0.6
        self._world.truth.saw("deaf node" if is_deaf else "mute node")
        await self._cut([(peer, node) if is_deaf else (node, peer) for peer in others], strike.lasts_s)

    async def _flap(self, strike: Strike, rng: random.Random) -> None:
        """Cuts and heals the links of a node again and again."""
        links = self._world.ways(strike.nodes[0])
        for _ in range(1 + int(strike.amount * FLAPS_MAX)):
            for link in links:
                link.cut()
            await asyncio.sleep(0.2 * strike.lasts_s * rng.random())
            for link in links:
                link.heal()
            await asyncio.sleep(0.2 * strike.lasts_s * rng.random())

    async def _clog(self, strike: Strike, rng: random.Random) -> None:
        links = self._world.ways(strike.nodes[0])
        for link in links:
            link.clog()
        await asyncio.sleep(strike.lasts_s)
        for link in links:
            link.unclog()

    async def _swizzle(self, strike: Strike, rng: random.Random) -> None:
        step_s = strike.lasts_s / (2 * len(strike.nodes))
        for node in strike.nodes:
            for link in self._world.ways(node):
                link.clog()
            await asyncio.sleep(step_s)
        for node in rng.sample(strike.nodes, len(strike.nodes)):
            for link in self._world.ways(node):
                link.unclog()
            await asyncio.sleep(step_s)

    async def _slow_network(self, strike: Strike, rng: random.Random) -> None:
        with _changed(list(self._world.links()), tail_rate=0.05 + strike.amount * 0.3, tail_s_mean=0.3):
            await asyncio.sleep(strike.lasts_s)

    async def _reset(self, strike: Strike, rng: random.Random) -> None:
        for _ in range(1 + int(strike.amount * 5)):
            node, peer = rng.choice(strike.nodes), rng.choice(self._world.swarm.nodes)
            if node != peer:
                self._world.network.reset(self._world.machine(node).name, self._world.machine(peer).name)
            await asyncio.sleep(strike.lasts_s * rng.random())

    async def _lose_answers(self, strike: Strike, rng: random.Random) -> None:
        """Has a node do what it is asked, while its answers are lost with their connections."""
        node = strike.nodes[0]
        others = [peer for peer in self._world.swarm.nodes if peer != node]
        for peer in others:
            self._world.link(node, peer).clog()
        await asyncio.sleep(strike.lasts_s * strike.amount)
        for peer in others:
            self._world.network.reset(self._world.machine(node).name, self._world.machine(peer).name)
            self._world.link(node, peer).unclog()

    async def _break_frames(self, strike: Strike, rng: random.Random) -> None:
        with _changed(self._world.ways(strike.nodes[0]), break_rate=0.02 + strike.amount * 0.1):
            await asyncio.sleep(strike.lasts_s)

    async def _repeat_frames(self, strike: Strike, rng: random.Random) -> None:
        with _changed(list(self._world.links()), replay_rate=0.05 + strike.amount * 0.3, replay_s_mean=strike.lasts_s):
            await asyncio.sleep(strike.lasts_s)

    async def _break_lane(self, strike: Strike, rng: random.Random) -> None:
        """Breaks single connections between brokers."""
        nodes = self._world.swarm.nodes
        for _ in range(1 + int(strike.amount * LANES_MAX) if len(nodes) > 1 else 0):
            names = [self._world.machine(node).name for node in rng.sample(nodes, 2)]
            self._world.network.reset(*names, is_single=True)
            self._world.truth.saw("lane broken")
            await asyncio.sleep(strike.lasts_s * rng.random())

    async def _stall_lane(self, strike: Strike, rng: random.Random) -> None:
        """Holds up all that is sent by some of the connections between brokers."""
        pipes = [pipe for link in self._world.links() for pipe in link.pipes]
        stalled = rng.sample(pipes, min(1 + int(strike.amount * LANES_MAX), len(pipes)))
        for pipe in stalled:
            self._world.truth.saw("lane stalled")
            pipe.is_clogged = True
        await asyncio.sleep(strike.lasts_s)
        for pipe in stalled:
            pipe.is_clogged = False
            pipe.wake()


@contextmanager
def _changed(links: list[Link], **values: float) -> Iterator[None]:
    """Sets link conditions while the context is open, and restores them afterwards."""
    before = [(link, name, getattr(link, name)) for link in links for name in values]
    for link, name, _ in before:
        setattr(link, name, values[name])
    try:
        yield
    finally:
        for link, name, value in before:
            setattr(link, name, value)
