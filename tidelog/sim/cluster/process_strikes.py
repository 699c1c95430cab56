"""Faults of processes, power and clocks: crashes, pauses, stops, drifting clocks."""

from __future__ import annotations

import asyncio
import random
from functools import partial

from msgspec import structs

from tidelog.sim.cluster.keeper import End
from tidelog.sim.cluster.scenario import Effects, Strike
from tidelog.sim.cluster.world import World
from tidelog.sim.kit.machine import ConnectionLost, Machine

STOP_S_MAX = 20.0
"""Seconds after which a service manager kills a broker that does not stop."""
CRASHES_MAX = 50
UP_S_MAX = 2.0
"""Seconds for which a crash loop waits for the broker to come up before it dies again."""
LOOK_S = 0.02
PARTS = 3


class ProcessStrikes:
    """Carries out the faults of processes, power and clocks."""

    def __init__(self, world: World) -> None:
        self._world = world

    def effects(self) -> Effects:
        """Returns the functions that carry out the faults of this class, by the fault's name."""
        return {
            "crash": partial(self._down, Machine.cut_power),
            "kill": partial(self._down, Machine.kill),
            "die at an operation": self._die_at_an_operation,
            "power cut of all": self._cut_power_of_all,
            "crash loop": self._crash_loop,
            "pause": self._pause,
            "pauses in turn": self._pauses_in_turn,
            "relay": self._relay,
            "stop": partial(self._down, self.stop_in_order),
            "drift": self._drift,
            "jump": self._jump,
        }

    # -- ends --------------------------------------------------------------------------------------------------------

    async def _down(self, end: End, strike: Strike, rng: random.Random) -> None:
        async with self._world.keepers[strike.nodes[0]].down(end):
            await asyncio.sleep(strike.lasts_s)

    async def _die_at_an_operation(self, strike: Strike, rng: random.Random) -> None:
        self._world.machine(strike.nodes[0]).disk.crash_at(1 + int(strike.amount**2 * 60))

    async def _cut_power_of_all(self, strike: Strike, rng: random.Random) -> None:
        await asyncio.gather(
            *(self._down(Machine.cut_power, _of(strike, node), rng) for node in self._world.swarm.nodes)
        )

    async def _crash_loop(self, strike: Strike, rng: random.Random) -> None:
        """Ends a broker again as soon as it is up, several times."""
        keeper = self._world.keepers[strike.nodes[0]]
        for _ in range(1 + int(strike.amount**2 * CRASHES_MAX)):
            async with keeper.down(rng.choice((Machine.kill, Machine.cut_power))):
                self._world.truth.saw("crash of a crash loop")
            deadline_s = self._world.true_time + UP_S_MAX
            while not keeper.machine.is_up and self._world.true_time < deadline_s:  # noqa: ASYNC110 - no event says so
                await asyncio.sleep(LOOK_S)
            await asyncio.sleep(rng.random() * LOOK_S)

    # -- pauses ------------------------------------------------------------------------------------------------------

    async def _pause(self, strike: Strike, rng: random.Random) -> None:
        machine = self._world.machine(strike.nodes[0])
        machine.pause()
        await asyncio.sleep(strike.lasts_s)
        machine.resume()

    async def _pauses_in_turn(self, strike: Strike, rng: random.Random) -> None:
        """Pauses some of the nodes, then others as soon as these go on (Redpanda's cheapest finder of bugs)."""
        for _ in range(1 + int(strike.amount * 4)):
            group = rng.sample(strike.nodes, rng.randint(1, len(strike.nodes)))
            for node in group:
                self._world.machine(node).pause()
            await asyncio.sleep(strike.lasts_s * (0.5 + rng.random()))
            for node in group:
                self._world.machine(node).resume()

    async def _relay(self, strike: Strike, rng: random.Random) -> None:
        """Disturbs three groups in turn: the first is paused while the others work; the second loses its power and the
        third is paused; the first goes on with what it remembers, and the second comes back to it (a finding of Jepsen
        on NATS)."""
        nodes = rng.sample(self._world.swarm.nodes, len(self._world.swarm.nodes))
        sleepers, losers, others = (nodes[part::PARTS] for part in range(PARTS))
        for node in sleepers:
            self._world.machine(node).pause()
        await asyncio.sleep(strike.lasts_s)
        downs = [asyncio.ensure_future(self._down(Machine.cut_power, _of(strike, node), rng)) for node in losers]
        for node in others:
            self._world.machine(node).pause()
        for node in sleepers:
            self._world.machine(node).resume()
        await asyncio.gather(*downs)
        await asyncio.sleep(strike.lasts_s)
        for node in others:
            self._world.machine(node).resume()

    async def stop_in_order(self, machine: Machine) -> None:
        """Stops a broker as a service manager does, killing it after `STOP_S_MAX` seconds."""
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

    # -- clocks ------------------------------------------------------------------------------------------------------

    async def _drift(self, strike: Strike, rng: random.Random) -> None:
        bound = self._world.swarm.clock_drift
        for node in strike.nodes:
            machine = self._world.machine(node)
            machine.time.change_rate(1 + rng.uniform(-bound, bound), self._world.true_time)

    async def _jump(self, strike: Strike, rng: random.Random) -> None:
        """Sets the wall clocks of the nodes up to an hour off; nothing may depend on them."""
        for node in strike.nodes:
            self._world.machine(node).clock.wall_skew_ms = rng.randint(-3_600_000, 3_600_000)


def _of(strike: Strike, node: int) -> Strike:
    return structs.replace(strike, nodes=(node,))
