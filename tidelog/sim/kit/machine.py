"""A simulated machine: a disk, a clock, an address on the network, and a broker that is started on it again and again.

Each start of the broker is an *incarnation*: a process of the loop (`tidelog.sim.kit.process`) with the broker and all
its tasks. A power cut or the end of the process first fences the disk and the network, and stops the process, so that
no `finally` block can do what no crashed machine does; then its tasks are cancelled. Clients live outside: a call into
a machine that dies is a connection that breaks, with the request executed or not.
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
    """Access of clients to the broker of one machine, or of several."""

    clock: SimClock

    async def call(self, work: Callable[[Broker], Coroutine[Any, Any, T]]) -> T:
        """Runs a request in the broker. Raises what the request raises, `Unreachable`, or `ConnectionLost`."""


class Unreachable(Exception):
    """The error of a call to a machine that does not listen: nothing was sent."""


class ConnectionLost(Exception):
    """The connection broke after the request was sent: the outcome is unknown."""


@dataclass(slots=True, eq=False)
class Incarnation:
    """A start of the broker on a machine: alive until the process ends or the machine is off."""

    process: Process
    disk: SimDisk
    host: SimHost
    network: ProcessNetwork
    runner: SimRunner
    is_alive: bool = True
    broker: Broker | None = None
    waiters: dict[asyncio.Future[None], None] = field(default_factory=dict)

    def end(self) -> None:
        """Ends the process: none of its callbacks runs from now on, not even those that were ready."""
        if self.is_alive:
            self.is_alive = False
            _loop().doom(self.process)
            for waiter in self.waiters:
                _wake(waiter)

    async def wait_for(self, task: asyncio.Task[Any] | None = None) -> None:
        """Returns when the task is done or the process is over; a task in which the process died is never done."""
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
    """A machine with one broker on a simulated disk and network. The loop must use `owned_task` as its task factory."""

    def __init__(
        self,
        seed: int | str,
        config: BrokerConfig,
        *,
        name: str = "127.0.0.1",
        network: SimNetwork | None = None,
        secret: ClusterSecret | None = None,
    ) -> None:
        """`name` is the machine's address on the network; without a network it gets one of its own. `secret` is the
        shared secret of its cluster, if there is one."""
        self.name = name
        self.network = network or SimNetwork(stream(seed, "network"))
        self.disk = SimDisk(seed)
        self.time = LocalTime()
        self.clock = SimClock(_loop())
        self.config = config
        self.disk_delay_s = DISK_DELAY_S
        """Mean seconds of a blocking call; `change_disk_delay` changes it."""
        self.contacts: tuple[tuple[str, int], ...] = ()
        """Peer addresses of the cluster that the broker is to join."""
        self.lives = 0
        """Number of times that the broker was started."""
        self._seed = seed
        self._secret = secret
        self._disks = 0
        self._entropy = SimEntropy(stream(seed, "entropy"))
        self._now: Incarnation | None = None

    @property
    def broker(self) -> Broker | None:
        """Running broker, for code that observes it; None if the process is down."""
        return self._now.broker if self._now is not None and self._now.is_alive else None

    @property
    def has_life(self) -> bool:
        """True from a start of the broker until `kill`, `cut_power` or `stop` has cleared it away, even if its process
        died meanwhile."""
        return self._now is not None

    @property
    def is_running(self) -> bool:
        """True if the process runs, whether or not the broker is ready."""
        return self._now is not None and self._now.is_alive

    @property
    def is_up(self) -> bool:
        """True if the broker is ready to answer."""
        broker = self.broker
        return broker is not None and broker.is_ready

    async def boot(self) -> None:
        """Starts the broker. Raises `ConnectionLost` if the process dies meanwhile, or the error with which
        `Broker.start` fails, such as `MetadataDamaged`, `WrongDirectory` or `OSError`."""
        await self.make_broker()
        await self.start_broker()

    async def make_broker(self) -> None:
        """Makes the process and its broker: the first half of `boot`."""
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
        """Starts the broker that `make_broker` made: the second half of `boot`."""
        now = self._now
        if now is None or now.broker is None:
            raise ConnectionLost
        await self._run(now, now.broker.start({HTTP: Endpoint(self.name, HTTP_PORT)}))

    async def call(self, work: Callable[[Broker], Coroutine[Any, Any, T]]) -> T:
        """Runs a request in the broker. Raises what the request raises, `Unreachable`, or `ConnectionLost`."""
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
        """Batches that the broker has recognised as duplicates since its start."""
        broker = self._now.broker if self._now else None
        return broker.stats.duplicate_batches if broker else 0

    async def wait_died(self) -> None:
        """Returns when the process has died of a planned crash."""
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
        """Changes the mean seconds of a blocking call to the disk, at once."""
        self.disk_delay_s = mean_s
        if self._now is not None:
            self._now.runner.mean_s = mean_s

    def replace_disk(self) -> None:
        """Replaces the disk by an empty one; the machine must be off."""
        assert self._now is None, "still running"
        self._disks += 1
        self.disk = SimDisk(f"{self._seed}/disk {self._disks}")

    def back_up(self, *, is_live: bool = False) -> dict[str, bytes]:
        """Returns the files by path: their durable content, or what a program reads now if `is_live`."""
        return {path: bytes(node.data if is_live else node.durable) for path, node in self.disk.medium.walk().items()}

    def restore(self, backup: dict[str, bytes]) -> None:
        """Replaces the disk by one that holds only these files; the machine must be off."""
        self.replace_disk()
        for path, content in backup.items():
            rot.plant(self.disk.medium, path, content)

    # -- ends --------------------------------------------------------------------------------------------------------

    async def cut_power(self) -> None:
        """Cuts the power of the machine; unsynced writes may be lost."""
        self.disk = await self._end(SimDisk.crash, SimHost.cut_power)

    async def kill(self) -> None:
        """Ends the process alone: its writes stay in the kernel's memory."""
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
    """Cancels the tasks of a dead process, which cannot reach disk or network any more."""
    dead.network.abandon()
    await _loop().end(dead.process)
