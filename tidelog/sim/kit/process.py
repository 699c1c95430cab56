"""Simulated processes: groups of callbacks that share one loop with those of other processes.

A process is identified by a context variable, which tasks, timers and futures carry with them; so everything that it
starts belongs to it. The processes of one loop share nothing but the virtual clock:

- callbacks of one process run in the order in which they became ready, as asyncio promises; between processes the order
  is drawn (`ReadyCallbacks`), so that a seed explores a schedule;
- a paused process runs nothing: callbacks that become ready meanwhile, overdue timers too, run when it is resumed;
- a buried process never runs anything again;
- each reads time at its own rate (`LocalTime`), as the quartz clocks of two machines differ.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class LocalTime:
    """A monotonic clock that runs at `rate` seconds per second of virtual time; it starts at the virtual time."""

    def __init__(self, rate: float = 1.0) -> None:
        self.rate = rate
        self._true_s = 0.0
        self._local_s = 0.0

    def at(self, true_s: float) -> float:
        """Returns the time that this clock shows at a virtual time."""
        return self._local_s + (true_s - self._true_s) * self.rate

    def until(self, local_s: float, true_s: float) -> float:
        """Returns the virtual time at which this clock will show `local_s`, where `true_s` is now."""
        return true_s + (local_s - self.at(true_s)) / self.rate

    def change_rate(self, rate: float, true_s: float) -> None:
        """Changes the rate from the virtual time `true_s` on; the shown time does not jump."""
        self._local_s, self._true_s, self.rate = self.at(true_s), true_s, rate


class Process:
    """The callbacks and tasks of one start of one machine."""

    __slots__ = ("is_buried", "is_dying", "is_paused", "name", "ready", "tasks", "time")

    def __init__(self, name: str, time: LocalTime | None = None) -> None:
        self.name = name
        self.time = time or LocalTime()
        self.ready: deque[asyncio.Handle] = deque()
        self.tasks: dict[asyncio.Task[Any], None] = {}
        """The tasks that are not done yet, in the order they were made."""
        self.is_paused = False
        self.is_dying = False
        """True if its machine is off: failures in its tasks are ignored from then on."""
        self.is_buried = False


OWNER: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)
"""Process whose callback is running; None for clients, network and faults, which belong to no process."""


def outside(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls a function outside of any process: timers that it sets go by virtual time."""
    return contextvars.Context().run(call, *args, **kwargs)


def context_of(process: Process) -> contextvars.Context:
    """Returns a context in which everything that is started belongs to the process."""
    context = contextvars.copy_context()
    context.run(OWNER.set, process)
    return context


def owned_task(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, T] | Generator[Any, None, T],
    context: contextvars.Context | None = None,
) -> asyncio.Task[T]:
    """Task factory for the loop: adds each task to the list of its process."""
    assert asyncio.iscoroutine(work)
    task: asyncio.Task[T] = asyncio.Task(work, loop=loop, context=context)
    owner = OWNER.get() if context is None else context.get(OWNER)
    if owner is not None:
        owner.tasks[task] = None
        task.add_done_callback(lambda done: owner.tasks.pop(done, None))
    return task


class ReadyCallbacks:
    """The callbacks that a loop runs next, in place of the deque in asyncio's base loop, with the methods that the loop
    calls."""

    def __init__(self, rng: random.Random) -> None:
        self._random = rng.random
        self._world = Process("world")
        self._runnable: list[Process] = []
        self._count = 0

    def __len__(self) -> int:
        """Number of callbacks that may run now; without those of paused processes, so that the clock moves on."""
        return self._count

    def append(self, handle: asyncio.Handle) -> None:
        owner = handle._context.get(OWNER) or self._world  # type: ignore[attr-defined]  # where asyncio keeps it
        if owner.is_buried:
            return
        owner.ready.append(handle)
        if owner.is_paused:
            return
        self._count += 1
        if len(owner.ready) == 1:
            self._runnable.append(owner)

    def popleft(self) -> asyncio.Handle:
        runnable = self._runnable
        index = int(self._random() * len(runnable)) if len(runnable) > 1 else 0
        process = runnable[index]
        handle = process.ready.popleft()
        self._count -= 1
        if not process.ready:
            del runnable[index]
        return handle

    def clear(self) -> None:
        for process in self._runnable:
            process.ready.clear()
        self._runnable.clear()
        self._count = 0

    def pause(self, process: Process) -> None:
        if not process.is_paused:
            process.is_paused = True
            self._withdraw(process)

    def resume(self, process: Process) -> None:
        if process.is_paused:
            process.is_paused = False
            self._count += len(process.ready)
            if process.ready:
                self._runnable.append(process)

    def bury(self, process: Process) -> None:
        """Drops the process's ready callbacks, and all later ones."""
        process.is_buried = True
        if not process.is_paused:
            self._withdraw(process)
        process.ready.clear()

    def _withdraw(self, process: Process) -> None:
        if process in self._runnable:
            self._runnable.remove(process)
            self._count -= len(process.ready)
