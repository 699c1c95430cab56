"""An asyncio event loop whose clock is virtual: sleeping costs nothing, and waiting for nothing is an error.

Where a real loop would ask the selector what is readable, this one moves its clock to the next timer. So an hour of
retention takes a millisecond, a run is a function of its inputs, and a program that waits for something that will never
happen is found at once (`Deadlock`) instead of by a timeout. There are no sockets and no threads; executor jobs run
inline after a drawn latency.

Callbacks belong to simulated processes (`tidelog.sim.kit.process`): those of one process run in the order in which they
became ready, as asyncio promises, and each process reads the clock at its own rate. Which of several processes runs
next is drawn.
"""

from __future__ import annotations

import asyncio
import asyncio.base_events
import contextvars
import heapq
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tidelog.sim.kit.faults import Crashed
from tidelog.sim.kit.process import OWNER, Process, ReadyCallbacks
from tidelog.sim.kit.seeds import stream

T = TypeVar("T")

EXECUTOR_LATENCY_S = 0.0005
"""Mean seconds until a job of an executor runs; exponentially distributed."""

CALLBACKS_MAX = 20_000_000
"""Rounds of the loop after which a run counts as a livelock; far more than any scenario needs."""


BURIAL_ROUNDS_MAX = 50
"""Number of times that a task may ignore its cancellation before the end of its process fails."""


class Deadlock(RuntimeError):
    """Raised when no callback is ready and no timer is set: the awaited event will never come."""


class Livelock(RuntimeError):
    """Raised when the program is busy for ever."""


TICK_S = 1e-9
"""Seconds by which the clock passes a timer, so that no rounding error makes the timer early."""


class SimLoop(asyncio.base_events.BaseEventLoop):
    """Event loop of one run of one seed. `failures` collects the errors that asyncio's exception handler gets, for the
    end of the run."""

    def __init__(self, seed: object = 0) -> None:
        super().__init__()
        self.failures: list[str] = []
        self._ready = self._schedule = ReadyCallbacks(stream(seed, "schedule"))
        self.true_time = 0.0
        """Seconds of virtual time since the run began, the same for all processes."""
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        """Heap of timers; of two that are due at the same time, the one that was set first fires first."""
        self._timers_set = 0
        self._latency = stream(seed, "executor")
        self._callbacks = 0
        self.set_exception_handler(_collect_failure)

    def time(self) -> float:
        """Returns the time by the clock of the calling process, in seconds."""
        process = OWNER.get()
        return self.true_time if process is None else process.time.at(self.true_time)

    def call_at(  # type: ignore[override]  # BaseEventLoop hides the types behind TypeVarTuple
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Sets a timer; `when` is by the clock of the calling process."""
        process = OWNER.get()
        if process is not None:
            when = process.time.until(when, self.true_time)
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._timers_set += 1
        heapq.heappush(self._timers, (when, self._timers_set, timer))
        return timer

    def pause(self, process: Process) -> None:
        """Runs no callback of this process until it is resumed; its overdue timers fire then, all at once."""
        self._schedule.pause(process)

    def resume(self, process: Process) -> None:
        self._schedule.resume(process)

    async def run_dry(self, process: Process) -> None:
        """Returns when no callback of this process is ready."""
        while process.ready:  # noqa: ASYNC110 - the scheduler itself is what is waited for
            await asyncio.sleep(0)

    def bury(self, process: Process) -> None:
        """Drops the callbacks of this process, now and for ever."""
        self._schedule.bury(process)

    def doom(self, process: Process) -> None:
        """Marks a process as dying: it is paused, and runs only the cancellation of its tasks in `end`."""
        process.is_dying = True
        self.pause(process)

    async def end(self, process: Process) -> None:
        """Cancels the tasks of a dying process, and runs nothing of it ever again."""
        for _ in range(BURIAL_ROUNDS_MAX):
            tasks = [task for task in process.tasks if not task.done()]
            if not tasks:
                break
            for task in tasks:
                task.cancel()
            self.resume(process)
            await self.run_dry(process)
            for task in tasks:
                if task.done() and not task.cancelled():
                    task.exception()  # nobody is left to hear of it
        left = [task for task in process.tasks if not task.done()]
        self.bury(process)
        assert not left, f"tasks of {process.name} cannot be cancelled: {left}"

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]  # BaseEventLoop hides the types behind TypeVarTuple
        future: asyncio.Future[T] = self.create_future()

        def run() -> None:
            if not future.cancelled():
                try:
                    future.set_result(func(*args))
                except BaseException as error:  # noqa: BLE001 - it belongs to whoever awaits the job
                    future.set_exception(error)

        self.call_later(self._latency.expovariate(1 / EXECUTOR_LATENCY_S), run)
        return future

    # -- turns -------------------------------------------------------------------------------------------------------

    def _run_once(self) -> None:
        """Makes one turn of the loop, in place of asyncio's, whose bookkeeping for selectors costs more than most
        callbacks do.
        """
        self._callbacks += 1
        if self._callbacks > CALLBACKS_MAX:
            raise Livelock(f"still busy after {CALLBACKS_MAX} rounds, at {self.time():.3f} s")
        schedule, timers = self._schedule, self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not schedule and not self._stopping:  # type: ignore[attr-defined]  # asyncio's own: `stop` was called
            self._let_time_pass()
        while timers and timers[0][0] < self.true_time:
            schedule.append(heapq.heappop(timers)[2])
        todo = len(schedule)
        while todo and schedule:  # a callback may pause processes that were about to run
            todo -= 1
            handle = schedule.popleft()
            if not handle.cancelled():
                handle._run()

    def _let_time_pass(self) -> None:
        if not self._timers:
            raise Deadlock("nothing is ready and no timer is set")
        self.true_time = max(self.true_time, self._timers[0][0]) + TICK_S

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Does nothing: asyncio counts cancelled timers here; this loop drops them when their time comes."""

    def _process_events(self, event_list: list[Any]) -> None:
        """Does nothing: there are no sockets."""

    def _write_to_self(self) -> None:
        """Does nothing: the loop never waits in a system call that needs waking."""


def _collect_failure(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    assert isinstance(loop, SimLoop)
    error = context.get("exception")
    handle = context.get("handle")
    process = handle._context.get(OWNER) if handle is not None else None
    if isinstance(error, Crashed) or (process is not None and process.is_dying):  # nobody is left to hear of it
        return
    loop.failures.append(f"{context['message']}: {error!r}" if error else context["message"])


def run(main: Callable[[], Coroutine[Any, Any, T]], seed: object = 0) -> T:
    """Runs `main()` to its end on a fresh loop.

    Raises `AssertionError` if it leaves a task behind or if any callback or forgotten task failed.
    """
    loop = SimLoop(seed)

    async def supervised() -> T:
        result = await main()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"{len(left)} tasks are left behind: {sorted(map(repr, left))}"
        return result

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        result = runner.run(supervised())
    assert not loop.failures, "; ".join(loop.failures)
    return result
