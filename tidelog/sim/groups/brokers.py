"""The brokers of one run, their coordinators, and the faults of these."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

from tidelog.broker.groups.classic_reach import ClassicGroups
from tidelog.broker.groups.coordinator import Coordinator
from tidelog.broker.groups.coordinator_state import CoordinatorContext
from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.broker.runtime.role_tasks import RoleTasks
from tidelog.broker.runtime.stats import Stats
from tidelog.groups.records import CLASSIC_LEVEL
from tidelog.groups.settings import GroupSettings, TopicSeen
from tidelog.model.errors import NotCoordinator
from tidelog.sim.groups.plan import Scenario
from tidelog.sim.groups.shared_log import LedLog, SharedLog
from tidelog.sim.kit.environment import SimClock, SimEntropy
from tidelog.sim.kit.machine import ConnectionLost
from tidelog.sim.kit.tasks import cancel_all

T = TypeVar("T")
NODES = 3
LEASE_S = 0.3
TOPIC = "t"


class Process:
    """A broker process that coordinates the group, or still believes that it does."""

    def __init__(self, log: LedLog, coordinator: Coordinator, tasks: RoleTasks) -> None:
        self.log = log
        self.coordinator = coordinator
        self.groups = ClassicGroups(lambda group: coordinator, _nothing_to_found)
        self.is_gone = asyncio.Event()
        self._tasks = tasks
        tasks.spawn(coordinator, coordinator.run())

    async def close(self) -> None:
        """Ends the coordinator in order: it answers the calls that wait."""
        self.coordinator.close()
        await self._tasks.cancel(self.coordinator)

    async def die(self) -> None:
        """Kills the process: calls that it has not answered raise `ConnectionLost`."""
        self.is_gone.set()
        await self._tasks.cancel(self.coordinator)


async def _nothing_to_found(deadline_s: float) -> None:
    """Does nothing, in place of the function that creates the offsets topic, which exists already."""


class Brokers:
    """The brokers of one run, one of which leads the offsets partition."""

    def __init__(self, scenario: Scenario, rng: random.Random, failed: Callable[[], None]) -> None:
        self._scenario = scenario
        self._rng = rng
        self._tasks = RoleTasks(failed)
        self._log = SharedLog()
        self._processes: dict[int, Process] = {}
        self._dead: dict[int, None] = {}
        self._entropy = SimEntropy(rng)
        self._is_calm = False
        self.leader = 0
        """Node id of the leader; the metadata have it at once, while members learn of it later."""
        self._lead(1)

    @property
    def coordinator(self) -> Coordinator | None:
        """The coordinator on the broker that leads the offsets partition; None while there is no such broker."""
        process = self._processes.get(self.leader)
        return None if process is None else process.coordinator

    async def find(self, node_id: int) -> int:
        """Returns the node id of the broker that leads the offsets partition."""
        return self.leader

    async def call(self, node_id: int, do: Callable[[ClassicGroups], Awaitable[T]], wait_s: float) -> T:
        """Calls the classic groups of a broker. Raises what `do` raises, `NotCoordinator` if that broker has no
        coordinator, and `ConnectionLost` if it is dead or dies meanwhile."""
        if node_id in self._dead:
            raise ConnectionLost
        process = self._processes.get(node_id)
        if process is None:
            raise NotCoordinator("another broker coordinates")
        asking = asyncio.ensure_future(do(process.groups))
        dying = asyncio.ensure_future(process.is_gone.wait())
        try:
            await asyncio.wait((asking, dying), return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise ConnectionLost
            return asking.result()
        finally:
            await cancel_all((asking, dying))

    # -- what happens ------------------------------------------------------------------------------------------------

    async def strike(self, action: str, lasts_s: float) -> None:
        """Disturbs the coordinator. `kill`: its broker dies, and stays down for `lasts_s` seconds; `zombie`: another
        broker leads, and the old one learns of it after `lasts_s` seconds; otherwise it hands over."""
        node_id = self.leader
        process, others = self._processes.get(node_id), self._free()
        if process is None or not others:
            return
        other = self._rng.choice(others)
        if action == "zombie":
            self._lead(other)
            await asyncio.sleep(lasts_s)
            await process.close()
            del self._processes[node_id]
            return
        del self._processes[node_id]
        if action == "kill":
            self._dead[node_id] = None
            await process.die()
            await asyncio.sleep(lasts_s)
            del self._dead[node_id]
        else:
            await process.close()
        if self.leader == node_id:
            self._lead(self._rng.choice(self._free()))

    def _free(self) -> list[int]:
        """Returns the brokers that are alive and have no coordinator."""
        return [one for one in range(1, NODES + 1) if one not in self._processes and one not in self._dead]

    def be_calm(self) -> None:
        """Ends the injected faults of appends, by the present leader and by later ones."""
        self._is_calm = True
        for process in self._processes.values():
            process.log.is_calm = True

    async def close(self) -> None:
        for process in self._processes.values():
            await process.close()

    def _lead(self, node_id: int) -> None:
        log = LedLog(self._log, node_id, self._scenario, self._rng)
        log.is_calm = self._is_calm
        partition = cast("LedPartition", log)  # all of it that a coordinator uses
        coordinator = Coordinator(partition, self._context(node_id), self._entropy, self._tasks.spawn)
        self.leader = node_id
        self._processes[node_id] = Process(log, coordinator, self._tasks)

    def _context(self, node_id: int) -> CoordinatorContext:
        view = {TOPIC: TopicSeen("id", self._scenario.partitions)}
        settings = GroupSettings(session_timeout_ms_min=1, initial_rebalance_delay_ms=self._scenario.initial_delay_ms)
        return CoordinatorContext(
            node_id,
            SimClock(asyncio.get_running_loop()),
            Stats(),
            settings,
            1_000.0,
            LEASE_S,
            lambda node: node not in self._dead,
            lambda: view,
            lambda: CLASSIC_LEVEL,
            self._entropy,
        )
