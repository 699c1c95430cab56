"""The time at which disks are damaged: all brokers are down at once, and come back one by one.

    a laggard dies, the others go on a while -> producers fall silent -> all die -> damage -> they start, in any order

Which broker starts first matters for recovery, so the order of the starts is drawn, with gaps of up to seconds; half of
the time the brokers with damaged disks start first.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from tidelog.sim.cluster.keeper import End
from tidelog.sim.cluster.scenario import Strike
from tidelog.sim.cluster.world import World
from tidelog.sim.kit import rot
from tidelog.sim.kit.machine import Machine

AFTER_ACK_S_MAX = 0.6
"""Longest time in seconds between the last acknowledgement and the end of all brokers. A log that is idle for half a
second records that it is durable."""
IN_FLIGHT_S = 0.03
SILENT_SHARE = 0.7
LAGGARD_SHARE = 0.3
POWER_SHARE = 0.25
VICTIMS_FIRST_SHARE = 0.5
GAPS_S = (0.0, 0.02, 0.3, 3.0)


def draw_end(rng: random.Random) -> End:
    """Draws how all brokers end: mostly as killed processes, whose writes stay in the kernel's memory; else by a power
    cut."""
    return Machine.cut_power if rng.random() < POWER_SHARE else Machine.kill


@asynccontextmanager
async def blackout(
    world: World,
    strike: Strike,
    rng: random.Random,
    victims: Sequence[int],
    end: End | None = None,
    written_back: Sequence[int] = (),
) -> AsyncIterator[None]:
    """Takes all brokers down and yields while they are down; afterwards starts them in a drawn order. None of `victims`
    is the laggard that may be stopped earlier than the others. What the kernels of the nodes `written_back` hold in
    memory becomes durable first."""
    end = end or draw_end(rng)
    others = [node for node in world.swarm.nodes if node not in victims]
    holds = {node: AsyncExitStack() for node in world.swarm.nodes}
    try:
        if others and rng.random() < LAGGARD_SHARE:
            laggard = rng.choice(others)
            await holds[laggard].enter_async_context(world.keepers[laggard].down(end))
            world.truth.saw("laggard before a blackout")
            await asyncio.sleep(strike.lasts_s)
        with world.silence(is_kept=rng.random() < SILENT_SHARE):
            await asyncio.sleep(IN_FLIGHT_S + rng.random() * AFTER_ACK_S_MAX)
            await asyncio.gather(
                *(hold.enter_async_context(world.keepers[node].down(end)) for node, hold in holds.items())
            )
            world.truth.note("all are down")
            for node in written_back:
                rot.write_back(world.medium(node))
            yield
            order = rng.sample([*holds], len(holds))
            if rng.random() < VICTIMS_FIRST_SHARE:
                order.sort(key=lambda node: node not in victims)
            for node in order:
                await holds[node].aclose()
                await asyncio.sleep(rng.choice(GAPS_S))
    finally:
        for hold in holds.values():
            await hold.aclose()
