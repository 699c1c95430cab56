"""A simulated machine: a disk, a clock, an address on the network, a broker, and everything that dies with them.

A machine lives several lives on one disk. Each life is an *incarnation*: the broker and whatever it set off, which is a
process of the loop (`tidelog.sim.kit.process`). An end of the power or of the process first fences the disk and the
network, and stops the process, so that no `finally` block can do what no crashed machine does; then its tasks are
cancelled and buried. Clients live outside: a call into a machine that dies is a connection that breaks, with whatever
it was doing done or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from tidelog.broker.broker import Broker
from tidelog.config.schema import BrokerConfig
from tidelog.model.cluster import HTTP, Endpoint
from tidelog.sim.kit import rot
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.environment import DISK_DELAY_S, SimClock, SimEntropy, SimRunner
from tidelog.sim.kit.loop import SimLoop
from tidelog.sim.kit.network import SimHost, SimNetwork
from tidelog.sim.kit.process import LocalTime, Process, context_of
from tidelog.sim.kit.process_network import ProcessNetwork
from tidelog.sim.kit.seeds import stream
from tidelog.transport.peer import ClusterSecret

T = TypeVar("T")

HTTP_PORT = 8082
STOP_S_MAX = 60.0


class Service(Protocol):
    """A machine, or several, as clients use them."""

    clock: SimClock

    async def call(self, work: Callable[[Broker], Coroutine[Any, Any, T]]) -> T:
        """Runs a request in the broker. Raises what it raises, `Unreachable`, or `ConnectionLost`."""
        ...


class Unreachable(Exception):
    """The error of a call to a machine that does not listen: nothing was sent."""


class ConnectionLost(Exception):
    """The connection broke after the request was sent: the outcome is unknown."""


@dataclass(slots=True, eq=False)
class Incarnation:
    """A life of a machine: alive until the machine is off."""

    process: Process
    disk: SimDisk
    host: SimHost
    network: ProcessNetwork
    runner: SimRunner
    is_alive: bool = True
    broker: Broker | None = None
    waiters: dict[asyncio.Future[None], None] = field(default_factory=dict)

    def end(self) -> None:
        """Ends the life: nothing of it runs from now on, not even what was ready."""
        if self.is_alive:
            self.is_alive = False
            _loop().doom(self.process)
            for waiter in self.waiters:
                _wake(waiter)

    async def wait_for(self, task: asyncio.Task[Any] | None = None) -> None:
        """Returns when the task is done, or the life is over: what the machine died of is never done."""
        if not self.is_alive:
            return
        waiter = _loop().create_future()
        self.waiters[waiter] = None
        if task is not None:
            task.add_done_callback(lambda _: _wake(waiter))
        try:
            await waiter
        finally:
            del self.waiters[waiter]


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _loop() -> SimLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    return loop


class Machine:
    """The loop must use `owned_task` as its task factory."""

    def __init__(
        self,
        seed: int | str,
        config: BrokerConfig,
        *,
        name: str = "127.0.0.1",
        network: SimNetwork | None = None,
        secret: ClusterSecret | None = None,
    ) -> None:
        """`name` is its address on the network; without a network it is alone on one of its own. `secret` is that of
        its cluster, if there is one."""
        self.name = name
        self.network = network or SimNetwork(stream(seed, "network"))
        self.disk = SimDisk(seed)
        self.time = LocalTime()
        self.clock = SimClock(_loop())
        self.config = config
        self.disk_delay_s = DISK_DELAY_S
        """Mean time of a blocking call; `change_disk_delay` changes it."""
        self.contacts: tuple[tuple[str, int], ...] = ()
        """Peer addresses of a cluster that its broker is to join."""
        self.lives = 0
        """How often it was started."""
        self._seed = seed
        self._secret = secret
        self._disks = 0
        self._entropy = SimEntropy(stream(seed, "entropy"))
        self._now: Incarnation | None = None

    @property
    def broker(self) -> Broker | None:
        """The broker of this life, while there is one: for whoever watches."""
        return self._now.broker if self._now is not None and self._now.is_alive else None

    @property
    def has_life(self) -> bool:
        """True from a boot until the end of that life has been seen to, by whatever it ended."""
        return self._now is not None

    @property
    def is_running(self) -> bool:
        """True if its process lives, whatever it is able to do."""
        return self._now is not None and self._now.is_alive

    @property
    def is_up(self) -> bool:
        """True if the broker answers."""
        broker = self.broker
        return broker is not None and broker.is_ready

    async def boot(self) -> None:
        """Starts the next life. Raises what the broker's start raises, or `ConnectionLost` if it is the last."""
        await self.make_broker()
        await self.start_broker()

    async def make_broker(self) -> None:
        """The first half of `boot`."""
        assert self._now is None, "still running"
        self.lives += 1
        process = Process(self.name, self.time)
        host = self.network.host(self.name)
        runner = SimRunner(stream(self._seed, f"runner {self.lives}"), self.disk_delay_s)
        now = self._now = Incarnation(process, self.disk, host, ProcessNetwork(process, host), runner)
        self.disk.on_crash = now.end
        await self._run(now, self._make_broker(now))

    async def _make_broker(self, now: Incarnation) -> None:
        parts = (self.config, now.disk, self.clock, self._entropy, now.runner, now.network)
        now.broker = Broker(*parts, self._contacts, secret=self._secret)

    async def _contacts(self) -> tuple[tuple[str, int], ...]:
        return self.contacts

    async def start_broker(self) -> None:
        """The other half of `boot`."""
        now = self._now
        if now is None or now.broker is None:
            raise ConnectionLost
        await self._run(now, now.broker.start({HTTP: Endpoint(self.name, HTTP_PORT)}))

    async def call(self, work: Callable[[Broker], Coroutine[Any, Any, T]]) -> T:
        """Runs a request in the broker. Raises what it raises, `Unreachable`, or `ConnectionLost`."""
        now = self._now
        if now is None or now.broker is None or not self.is_up:
            raise Unreachable
        return await self._run(now, work(now.broker))

    async def _run(self, now: Incarnation, work: Coroutine[Any, Any, T]) -> T:
        task = _loop().create_task(work, context=context_of(now.process))
        try:
            await now.wait_for(task)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if now.is_alive and not task.cancelled():
            return task.result()
        if task.done() and not task.cancelled():
            task.exception()  # an answer that nobody will get
        raise ConnectionLost

    @property
    def duplicates(self) -> int:
        """Batches that the broker of this life recognised as repeated."""
        broker = self._now.broker if self._now else None
        return broker.stats.duplicate_batches if broker else 0

    async def wait_died(self) -> None:
        """Returns when a planned crash has struck."""
        assert self._now is not None
        await self._now.wait_for()

    # -- pauses ------------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Stops the process between two callbacks (SIGSTOP, a long garbage collection, a busy host)."""
        if self._now is not None and self._now.is_alive:
            _loop().pause(self._now.process)

    def resume(self) -> None:
        if self._now is not None and self._now.is_alive:
            _loop().resume(self._now.process)

    # -- disks -------------------------------------------------------------------------------------------------------

    def change_disk_delay(self, mean_s: float) -> None:
        """Makes the disk slower or faster, at once."""
        self.disk_delay_s = mean_s
        if self._now is not None:
            self._now.runner.mean_s = mean_s

    def replace_disk(self) -> None:
        """Puts an empty disk in; the machine is off."""
        assert self._now is None, "still running"
        self._disks += 1
        self.disk = SimDisk(f"{self._seed}/disk {self._disks}")

    def back_up(self, *, is_live: bool = False) -> dict[str, bytes]:
        """The files as they are durably on the disk, or as a program sees them that copies them now."""
        return {path: bytes(node.data if is_live else node.durable) for path, node in self.disk.medium.walk().items()}

    def restore(self, backup: dict[str, bytes]) -> None:
        """Puts a disk in that holds these files and nothing else; the machine is off."""
        self.replace_disk()
        for path, content in backup.items():
            rot.plant(self.disk.medium, path, content)

    # -- ends --------------------------------------------------------------------------------------------------------

    async def cut_power(self) -> None:
        """Ends the life, if it has not ended yet; what was not synced may be lost."""
        self.disk = await self._end(SimDisk.crash, SimHost.cut_power)

    async def kill(self) -> None:
        """Ends the process alone: what it wrote stays in the kernel's memory."""
        self.disk = await self._end(SimDisk.kill, SimHost.kill)

    async def _end(self, disk_ends: Callable[[SimDisk], SimDisk], host_ends: Callable[[SimHost], None]) -> SimDisk:
        now, self._now = self._now, None
        disk = disk_ends(self.disk)
        if now is not None:
            now.end()
            host_ends(now.host)
            await _bury(now)
        return disk

    async def stop(self) -> None:
        """Stops the broker gracefully. Raises `ConnectionLost` if the machine dies of it."""
        now = self._now
        assert now is not None and now.broker is not None
        async with asyncio.timeout(STOP_S_MAX):
            await self._run(now, now.broker.hand_over())
            await self._run(now, now.broker.stop())
        self._now = None
        self.disk = self.disk.kill()
        now.end()
        now.host.kill()
        await _bury(now)


async def _bury(dead: Incarnation) -> None:
    """Ends the tasks of a dead process; the fence around them lets nothing out."""
    dead.network.abandon()
    await _loop().end(dead.process)
