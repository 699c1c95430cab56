"""One simulated machine: a disk, a broker, and everything that dies with them.

A machine lives several lives on one disk. Each life is an *incarnation*: the broker and all tasks it ever made, which
inherit a context variable and so are known by it. An end of the power or of the process first fences the disk, so that
no `finally` block can write; then the incarnation's tasks are cancelled. Clients live outside: a call into a machine
that dies is a connection that breaks, with whatever it was doing done or not.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tidelog.broker.broker import Broker
from tidelog.config.schema import BrokerConfig
from tidelog.sim.disk import SimDisk
from tidelog.sim.environment import SimClock, SimEntropy, SimRunner
from tidelog.sim.seeds import stream

T = TypeVar("T")

ADDRESS = ("127.0.0.1", 8082)
STOP_S_MAX = 60.0


class Unreachable(Exception):
    """Nobody listens: nothing was sent."""


class ConnectionLost(Exception):
    """The connection broke after the request was sent: the outcome is unknown."""


@dataclass(slots=True, eq=False)
class Incarnation:
    """One life: alive until its machine is off. `tasks` are those not done yet, in the order they were made."""

    disk: SimDisk
    is_alive: bool = True
    tasks: dict[asyncio.Task[Any], None] = field(default_factory=dict)
    broker: Broker | None = None
    waiters: dict[asyncio.Future[None], None] = field(default_factory=dict)

    def end(self) -> None:
        self.is_alive = False
        for waiter in self.waiters:
            _wake(waiter)

    async def wait_for(self, task: asyncio.Task[Any] | None = None) -> None:
        """Returns when the task is done, or the life is over: what the machine died of is never done."""
        if not self.is_alive:
            return
        waiter = asyncio.get_running_loop().create_future()
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


_OWNER: contextvars.ContextVar[Incarnation | None] = contextvars.ContextVar("incarnation", default=None)


def owned_task(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, T] | Generator[Any, None, T],
    context: contextvars.Context | None = None,
) -> asyncio.Task[T]:
    """A task factory for the loop: tasks made by a machine's broker belong to its incarnation."""
    assert asyncio.iscoroutine(work)
    task: asyncio.Task[T] = asyncio.Task(work, loop=loop, context=context)
    owner = _OWNER.get() if context is None else context.get(_OWNER)
    if owner is not None:
        owner.tasks[task] = None
        task.add_done_callback(lambda done: owner.tasks.pop(done, None))
    return task


class Machine:
    """The loop must use `owned_task` as its task factory."""

    def __init__(self, seed: int | str, config: BrokerConfig) -> None:
        loop = asyncio.get_running_loop()
        self.disk = SimDisk(seed)
        self.clock = SimClock(loop)
        self.config = config
        self._seed = seed
        self._entropy = SimEntropy(stream(seed, "entropy"))
        self.lives = 0
        """How often it was started."""
        self._now: Incarnation | None = None

    @property
    def is_up(self) -> bool:
        """True if the broker answers."""
        now = self._now
        return now is not None and now.is_alive and now.broker is not None and now.broker.is_ready

    async def boot(self) -> None:
        """Starts the next life. Raises what the broker's start raises, or `ConnectionLost` if it is the last."""
        assert self._now is None, "still running"
        self.lives += 1
        now = self._now = Incarnation(self.disk)
        self.disk.on_crash = now.end
        await self._run(now, self._start(now))

    async def _start(self, now: Incarnation) -> None:
        runner = SimRunner(stream(self._seed, f"runner {self.lives}"))
        now.broker = Broker(self.config, now.disk, self.clock, self._entropy, runner)
        await now.broker.start(ADDRESS)

    async def call(self, work: Callable[[Broker], Coroutine[Any, Any, T]]) -> T:
        """Runs a request in the broker. Raises what it raises, `Unreachable`, or `ConnectionLost`."""
        now = self._now
        if now is None or now.broker is None or not self.is_up:
            raise Unreachable
        return await self._run(now, work(now.broker))

    async def _run(self, now: Incarnation, work: Coroutine[Any, Any, T]) -> T:
        context = contextvars.copy_context()
        context.run(_OWNER.set, now)
        task = asyncio.get_running_loop().create_task(work, context=context)
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

    # -- ends --------------------------------------------------------------------------------------------------------

    async def cut_power(self) -> None:
        """Ends the life, if it has not ended yet; what was not synced may be lost."""
        self.disk = await self._end(SimDisk.crash)

    async def kill(self) -> None:
        """Ends the process alone: what it wrote stays in the kernel's memory."""
        self.disk = await self._end(SimDisk.kill)

    async def _end(self, how: Callable[[SimDisk], SimDisk]) -> SimDisk:
        now, self._now = self._now, None
        disk = how(self.disk)
        if now is not None:
            now.end()
            await self._bury(now)
        return disk

    async def stop(self) -> None:
        """Stops the broker gracefully. Raises `ConnectionLost` if the machine dies of it."""
        now = self._now
        assert now is not None and now.broker is not None
        async with asyncio.timeout(STOP_S_MAX):
            await self._run(now, now.broker.stop())
        self._now = None
        self.disk = self.disk.kill()
        now.end()
        await self._bury(now)

    async def _bury(self, now: Incarnation) -> None:
        tasks = list(now.tasks)
        for task in tasks:
            task.cancel()
        async with asyncio.timeout(STOP_S_MAX):
            await asyncio.gather(*tasks, return_exceptions=True)
