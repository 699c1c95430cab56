"""What befalls the machines: each kind of fault, from its beginning to its end.

A fault is a coroutine: it does its damage, waits, and undoes what can be undone. Several are under way at a time; none
minds whether the machine it hits is up, down, or starting. Kinds whose name says nothing of it:

| kind | what happens |
|---|---|
| die at an operation | the power fails in the midst of one of the next operations on the disk |
| split | the nodes named are cut off from the others, both ways |
| cut one way | what the first sends to the second does not arrive |
| deafen | nothing reaches a node (or nothing leaves it), while all else works |
| swizzle | nodes are clogged one by one, and freed in another order (FoundationDB) |
| repeat frames | requests arrive again, later, on any connection of the same caller |
| rot | a bit of the metadata turns over while the machine is down |
| wipe | the disk is replaced by an empty one |
| restore | a disk comes back as it was some time ago; of brokers without data that never voted: docs/testing.md |
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager

from tidelog.sim import rot
from tidelog.sim.cluster.scenario import Strike
from tidelog.sim.cluster.world import World
from tidelog.sim.faults import NO_FAULTS, FaultRates
from tidelog.sim.machine import ConnectionLost, Machine
from tidelog.sim.medium import CAPACITY_BYTES
from tidelog.sim.network_link import Link
from tidelog.sim.seeds import stream

STOP_S_MAX = 9.0
"""After that a service manager kills what does not stop."""
METADATA = "metadata/"
SLOW_FACTOR = 30.0


class Nemesis:
    """Carries out the strikes of one run."""

    def __init__(self, seed: int, world: World) -> None:
        self._seed = seed
        self._world = world
        self._kinds: dict[str, Callable[[Strike, random.Random], Awaitable[None]]] = {
            "crash": self._crash,
            "kill": self._kill,
            "die at an operation": self._die_at_an_operation,
            "power cut of all": self._cut_power_of_all,
            "pause": self._pause,
            "stop": self._stop,
            "isolate": self._isolate,
            "split": self._split,
            "cut one way": self._cut_one_way,
            "deafen": self._deafen,
            "clog": self._clog,
            "swizzle": self._swizzle,
            "slow network": self._slow_network,
            "reset": self._reset,
            "break frames": self._break_frames,
            "repeat frames": self._repeat_frames,
            "sync error": self._sync_error,
            "write error": self._write_error,
            "full disk": self._full_disk,
            "slow disk": self._slow_disk,
            "rot": self._rot,
            "wipe": self._wipe,
            "restore": self._restore,
            "drift": self._drift,
            "jump": self._jump,
        }

    async def strike(self, strike: Strike) -> None:
        """Does it, and returns when it is over."""
        rng = stream(self._seed, f"strike {strike}")
        self._world.truth.note("strike", strike.kind, *strike.nodes)
        self._world.truth.saw(f"fault: {strike.kind}")
        await self._kinds[strike.kind](strike, rng)
        self._world.truth.note("over", strike.kind, *strike.nodes)

    # -- processes and power -----------------------------------------------------------------------------------------

    async def _crash(self, strike: Strike, rng: random.Random) -> None:
        async with self._world.keepers[strike.nodes[0]].down(Machine.cut_power):
            await asyncio.sleep(strike.lasts_s)

    async def _kill(self, strike: Strike, rng: random.Random) -> None:
        async with self._world.keepers[strike.nodes[0]].down(Machine.kill):
            await asyncio.sleep(strike.lasts_s)

    async def _die_at_an_operation(self, strike: Strike, rng: random.Random) -> None:
        self._world.machine(strike.nodes[0]).disk.crash_at(1 + int(strike.amount**2 * 60))

    async def _cut_power_of_all(self, strike: Strike, rng: random.Random) -> None:
        await asyncio.gather(
            *(self._crash(Strike(0, "", (node,), strike.lasts_s, 0), rng) for node in self._world.swarm.nodes)
        )

    async def _pause(self, strike: Strike, rng: random.Random) -> None:
        machine = self._world.machine(strike.nodes[0])
        machine.pause()
        await asyncio.sleep(strike.lasts_s)
        machine.resume()

    async def _stop(self, strike: Strike, rng: random.Random) -> None:
        async with self._world.keepers[strike.nodes[0]].down(self._stop_in_order):
            await asyncio.sleep(strike.lasts_s)

    async def _stop_in_order(self, machine: Machine) -> None:
        try:
            if machine.is_up:
                async with asyncio.timeout(STOP_S_MAX):
                    await machine.stop()
                self._world.truth.saw("clean stop")
                return
        except ConnectionLost:
            await machine.cut_power()
            return
        except TimeoutError:
            self._world.truth.saw("stop took too long")
        await machine.kill()

    # -- the network -------------------------------------------------------------------------------------------------

    async def _isolate(self, strike: Strike, rng: random.Random) -> None:
        await self._separate(strike.nodes[:1], strike.lasts_s)

    async def _split(self, strike: Strike, rng: random.Random) -> None:
        await self._separate(strike.nodes, strike.lasts_s)

    async def _separate(self, group: Iterable[int], lasts_s: float) -> None:
        group = list(group)
        others = [node for node in self._world.swarm.nodes if node not in group]
        ways = [way for one in group for other in others for way in ((one, other), (other, one))]
        await self._cut(ways, lasts_s)

    async def _cut_one_way(self, strike: Strike, rng: random.Random) -> None:
        if len(strike.nodes) > 1:
            await self._cut([strike.nodes[:2]], strike.lasts_s)

    async def _deafen(self, strike: Strike, rng: random.Random) -> None:
        node = strike.nodes[0]
        others = [other for other in self._world.swarm.nodes if other != node]
        is_deaf = strike.amount < 0.6
        await self._cut([(other, node) if is_deaf else (node, other) for other in others], strike.lasts_s)

    async def _cut(self, ways: Iterable[tuple[int, ...]], lasts_s: float) -> None:
        links = [self._world.link(*way) for way in ways]
        for link in links:
            link.cut()
        await asyncio.sleep(lasts_s)
        for link in links:
            link.heal()

    async def _clog(self, strike: Strike, rng: random.Random) -> None:
        links = self._links_of(strike.nodes[0])
        for link in links:
            link.clog()
        await asyncio.sleep(strike.lasts_s)
        for link in links:
            link.unclog()

    async def _swizzle(self, strike: Strike, rng: random.Random) -> None:
        step_s = strike.lasts_s / (2 * len(strike.nodes))
        for node in strike.nodes:
            for link in self._links_of(node):
                link.clog()
            await asyncio.sleep(step_s)
        for node in rng.sample(strike.nodes, len(strike.nodes)):
            for link in self._links_of(node):
                link.unclog()
            await asyncio.sleep(step_s)

    async def _slow_network(self, strike: Strike, rng: random.Random) -> None:
        with _changed(list(self._world.links()), tail_rate=0.05 + strike.amount * 0.3, tail_s_mean=0.3):
            await asyncio.sleep(strike.lasts_s)

    async def _reset(self, strike: Strike, rng: random.Random) -> None:
        for _ in range(1 + int(strike.amount * 5)):
            one, other = rng.choice(strike.nodes), rng.choice(self._world.swarm.nodes)
            if one != other:
                self._world.network.reset(self._world.machine(one).name, self._world.machine(other).name)
            await asyncio.sleep(strike.lasts_s * rng.random())

    async def _break_frames(self, strike: Strike, rng: random.Random) -> None:
        with _changed(self._links_of(strike.nodes[0]), break_rate=0.02 + strike.amount * 0.1):
            await asyncio.sleep(strike.lasts_s)

    async def _repeat_frames(self, strike: Strike, rng: random.Random) -> None:
        with _changed(list(self._world.links()), replay_rate=0.05 + strike.amount * 0.3, replay_s_mean=strike.lasts_s):
            await asyncio.sleep(strike.lasts_s)

    def _links_of(self, node: int) -> list[Link]:
        others = [other for other in self._world.swarm.nodes if other != node]
        return [self._world.link(*way) for other in others for way in ((node, other), (other, node))]

    # -- disks -------------------------------------------------------------------------------------------------------

    async def _sync_error(self, strike: Strike, rng: random.Random) -> None:
        await self._bad_disk(strike, FaultRates(sync_error=0.05 + strike.amount * 0.5))

    async def _write_error(self, strike: Strike, rng: random.Random) -> None:
        await self._bad_disk(strike, FaultRates(write_error=0.02 + strike.amount * 0.3))

    async def _bad_disk(self, strike: Strike, faults: FaultRates) -> None:
        """Whoever is left with a log that has failed is started again, as an operator would."""
        node = strike.nodes[0]
        self._world.machine(node).disk.medium.faults = faults
        await asyncio.sleep(strike.lasts_s)
        self._world.machine(node).disk.medium.faults = NO_FAULTS
        async with self._world.keepers[node].down(Machine.kill):
            await asyncio.sleep(0.1)

    async def _full_disk(self, strike: Strike, rng: random.Random) -> None:
        node = strike.nodes[0]
        medium = self._world.machine(node).disk.medium
        medium.capacity_bytes = medium.used_bytes + int(strike.amount * 3_000)
        await asyncio.sleep(strike.lasts_s)
        medium.capacity_bytes = CAPACITY_BYTES

    async def _slow_disk(self, strike: Strike, rng: random.Random) -> None:
        machine = self._world.machine(strike.nodes[0])
        machine.change_disk_delay(self._world.swarm.disk_delay_s * (1 + strike.amount * SLOW_FACTOR))
        await asyncio.sleep(strike.lasts_s)
        machine.change_disk_delay(self._world.swarm.disk_delay_s)

    async def _rot(self, strike: Strike, rng: random.Random) -> None:
        node = strike.nodes[0]
        async with self._world.keepers[node].down(Machine.cut_power):
            medium = self._world.machine(node).disk.medium
            paths = [path for path, file in medium.walk().items() if path.startswith(METADATA) and file.data]
            if paths and self._takes(node):
                path = rng.choice(paths)
                rot.flip_bit(medium, path, rng.randrange(len(medium.walk()[path].data)), rng.randrange(8))
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
        """True if the fault atlas lets this node's disk go; it is booked then."""
        if not self._world.may_destroy(node):
            self._world.truth.saw("fault withheld")
            return False
        self._world.destroy(node)
        return True

    # -- clocks ------------------------------------------------------------------------------------------------------

    async def _drift(self, strike: Strike, rng: random.Random) -> None:
        bound = self._world.swarm.clock_drift
        for node in strike.nodes:
            machine = self._world.machine(node)
            machine.time.change_rate(1 + rng.uniform(-bound, bound), self._world.true_time)

    async def _jump(self, strike: Strike, rng: random.Random) -> None:
        """The wall clock is set; nothing may depend on it."""
        for node in strike.nodes:
            self._world.machine(node).clock.wall_skew_ms = rng.randint(-3_600_000, 3_600_000)


@contextmanager
def _changed(links: list[Link], **values: float) -> Iterator[None]:
    """Conditions that hold for a while."""
    before = [(link, name, getattr(link, name)) for link in links for name in values]
    for link, name, _ in before:
        setattr(link, name, values[name])
    try:
        yield
    finally:
        for link, name, value in before:
            setattr(link, name, value)
