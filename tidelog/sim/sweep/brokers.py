"""The brokers of one round of the sweep, on simulated machines. A round has two parts, each on a loop of its own:

    write: brokers start, four entries are acknowledged in each log, all end -> the files of each disk
    play: these files on fresh disks -> damage, a pattern for each log -> the brokers start -> all is read

So a log is written once, and every case begins with the same bytes.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, TypeVar

from tidelog.broker.broker import Broker
from tidelog.config.schema import BrokerConfig
from tidelog.model.cluster import ClusterImage
from tidelog.model.errors import TidelogError
from tidelog.sim.cluster.keeper import Keeper
from tidelog.sim.cluster.world import PEER_PORT, address_of
from tidelog.sim.kit.loop import SimLoop
from tidelog.sim.kit.machine import ConnectionLost, Machine, Unreachable
from tidelog.sim.kit.medium import Medium
from tidelog.sim.kit.network import SimNetwork
from tidelog.sim.kit.process import owned_task
from tidelog.sim.kit.seeds import stream
from tidelog.sim.kit.tasks import cancel_all, raise_failures
from tidelog.sim.sweep.cases import Plan, Stop
from tidelog.sim.sweep.copies import Content

T = TypeVar("T")

FAILURES = (Unreachable, ConnectionLost, TidelogError)
IDLE_S: Final = 2.0
"""Seconds without writes before an end. A log that is idle for half a second records that all of it is durable."""
LOOK_S: Final = 0.05
UP_S_MAX: Final = 60.0
RESTART_S: Final = 0.3
GAPS_S: Final = (0.0, 0.02, 0.3, 2.0)
"""Seconds between the starts of two brokers, to draw from."""
DAY_MS: Final = 86_400_000
SETTINGS: Final[dict[str, int | str]] = {
    "broker.heartbeat.interval.ms": 500,
    "broker.session.timeout.ms": 3_000,
    "log.scrub.period.ms": 36_000_000,
}
"""Broker settings of a round; with them readers find the damage, and not the scrubber."""


class Brokers:
    """The brokers of a plan, off until they are started; must be made on the running loop."""

    def __init__(self, plan: Plan, seed: str) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        loop.set_task_factory(owned_task)
        self.plan = plan
        self._seed = seed
        self._network = SimNetwork(stream(seed, "network"))
        self.machines = {node: self._make(node) for node in plan.nodes}
        self._keepers = {
            node: Keeper(node, machine, RESTART_S, Counter[str]()) for node, machine in self.machines.items()
        }
        self._holds = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []

    def _make(self, node: int) -> Machine:
        founders = [f"{founder}@{address_of(founder)}:{PEER_PORT}" for founder in self.plan.nodes]
        named = {"node.id": node, "peer.listener": f"{address_of(node)}:{PEER_PORT}", "cluster.voters": founders}
        config = BrokerConfig.model_validate({**SETTINGS, **named})
        return Machine(f"{self._seed}/{node}", config, name=address_of(node), network=self._network)

    @property
    def media(self) -> dict[int, Medium]:
        """Disks by node, while the machines are off."""
        return {node: machine.disk.medium for node, machine in self.machines.items()}

    @property
    def image(self) -> ClusterImage:
        """Newest image of the cluster that a broker has."""
        brokers = [machine.broker for machine in self.machines.values()]
        return max((broker.image for broker in brokers if broker is not None), key=lambda image: image.position)

    def start(self, node: int) -> None:
        """Switches a machine on, and keeps it running from now on."""
        self._tasks.append(asyncio.ensure_future(self._keepers[node].run()))

    async def start_in_turn(self, rng: random.Random) -> None:
        """Starts all brokers in a drawn order, with gaps."""
        first, *others = rng.sample(self.plan.nodes, len(self.plan.nodes))
        self.start(first)
        for node in others:
            await asyncio.sleep(rng.choice(GAPS_S))
            self.start(node)

    async def are_up(self, seconds_max: float = UP_S_MAX, gives_up: Callable[[], bool] = bool) -> bool:
        """Waits until all brokers are ready, for `seconds_max` seconds at most, or until `gives_up` returns True;
        returns True if all are ready."""
        deadline_s = asyncio.get_running_loop().time() + seconds_max
        while not all(machine.is_up for machine in self.machines.values()):
            raise_failures(self._tasks)
            if asyncio.get_running_loop().time() > deadline_s or gives_up():
                return False
            await asyncio.sleep(LOOK_S)
        return True

    def words(self) -> dict[int, str]:
        """Returns why each broker is not ready, as it says itself; ready brokers are left out."""
        words = {}
        for node, machine in self.machines.items():
            broker, refusals = machine.broker, self._keepers[node].start_errors
            if broker is None or refusals:
                words[node] = refusals[-1] if refusals else "it is down"
            elif not broker.is_ready:
                words[node] = broker.stage
        return words

    async def ask(self, node: int, work: Callable[[Broker], Coroutine[Any, Any, T]]) -> T | Exception:
        """Calls a broker; returns the result, or the error if it fails."""
        try:
            return await self.machines[node].call(work)
        except FAILURES as error:
            return error

    async def insist(self, work: Callable[[Broker], Coroutine[Any, Any, T]], asks: Callable[[], int]) -> T:
        """Calls the broker that `asks` returns, and again until it answers. Raises `AssertionError` after a minute."""
        deadline_s = asyncio.get_running_loop().time() + UP_S_MAX
        while isinstance(answer := await self.ask(asks(), work), Exception):
            assert asyncio.get_running_loop().time() < deadline_s, repr(answer)
            await asyncio.sleep(LOOK_S)
        return answer

    # -- ends --------------------------------------------------------------------------------------------------------

    async def down(self, node: int, end: Callable[[Machine], Awaitable[None]] = Machine.kill) -> None:
        """Ends a machine's process; it stays off."""
        await self._holds.enter_async_context(self._keepers[node].down(end))

    async def end(self) -> dict[int, Content]:
        """Ends all brokers as the plan says; returns the files of each disk."""
        stop = self.plan.stop
        if stop is Stop.IDLE:
            await asyncio.sleep(IDLE_S)
        ends = {Stop.CLEAN: Machine.stop, Stop.POWER: Machine.cut_power}
        await asyncio.gather(*(self.down(node, ends.get(stop, Machine.kill)) for node in self.machines))
        return {node: machine.back_up(is_live=stop is not Stop.POWER) for node, machine in self.machines.items()}

    def restore(self, disks: Mapping[int, Content]) -> None:
        """Replaces the disks by ones that hold these files, and sets the wall clocks a day ahead."""
        for node, machine in self.machines.items():
            machine.restore(dict(disks[node]))
            machine.clock.wall_skew_ms = DAY_MS

    async def close(self) -> None:
        """Switches all machines off."""
        await cancel_all(self._tasks)
        for machine in self.machines.values():
            if machine.has_life:
                await machine.kill()
        await self._holds.aclose()


@asynccontextmanager
async def brokers_of(plan: Plan, seed: str) -> AsyncIterator[Brokers]:
    """Makes the brokers of a plan; those that run when the context ends are killed."""
    brokers = Brokers(plan, seed)
    try:
        yield brokers
    finally:
        await brokers.close()
