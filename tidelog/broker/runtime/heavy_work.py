"""Work of requests that takes longer than the event loop may be blocked: decompressing batches, building and encoding
documents.

Such work comes as `model.steps`. Its first slice is done at once, so small work costs nothing here. Work that is not
done by then becomes a *job*. The number of running jobs is bounded, which bounds their memory; others wait in the order
they came, for a bounded time, and in bounded number. The jobs take turns, and in each turn of the loop one of them does
one slice: so everything else on the loop waits for one slice at most. What a codec does without the interpreter's lock
is done by one worker thread, one call after the other.

`docs/decisions/0044` has the measurements.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from tidelog.model.errors import Overloaded
from tidelog.model.ports import BlockingRunner
from tidelog.model.steps import Steps

T = TypeVar("T")

JOBS_MAX: Final = 8
WAITING_MAX: Final = 256
WAIT_S_MAX: Final = 10.0


@dataclass(eq=False)
class HeavyWork:
    """The jobs (large requests in slices) of one broker. Without a `worker`, the functions that their steps yield are
    called on the event loop, each as a slice of its own."""

    worker: BlockingRunner | None = None
    jobs_max: int = JOBS_MAX
    waiting_max: int = WAITING_MAX
    wait_s_max: float = WAIT_S_MAX
    jobs: int = field(init=False, default=0)
    """Number of running jobs."""
    slices: int = field(init=False, default=0)
    """Number of slices that jobs have done since the start."""
    _places: deque[asyncio.Future[None]] = field(init=False, default_factory=deque)
    _turns: deque[asyncio.Future[None]] = field(init=False, default_factory=deque)

    @property
    def waiting(self) -> int:
        """Number of jobs that wait to begin."""
        return len(self._places)

    async def do(self, steps: Steps[T]) -> T:
        """Does the work of the generator `steps` (`model.steps`), which yields after each slice, and returns its
        result. Raises what it raises, or `Overloaded` if there are too many jobs; the first slice has been done by
        then."""
        return await self._do(steps, is_job=True)

    async def finish(self, steps: Steps[T]) -> T:
        """Does the work of the generator `steps` (`model.steps`) to its end, and returns its result, without counting
        as a job, so that `Overloaded` is never raised: for work that cannot be refused any more, because something was
        appended. The caller bounds its memory."""
        return await self._do(steps, is_job=False)

    async def _do(self, steps: Steps[T], *, is_job: bool) -> T:
        job = _Job(self)
        try:
            step = _advance(steps)
            if is_job and not isinstance(step, _Outcome):
                await self._enter()
                job.is_begun = True
            while not isinstance(step, _Outcome):
                step = await job.go_on(steps, step)
            outcome: T = step.value
            return outcome
        finally:
            steps.close()
            self._end(job)

    def _end(self, job: _Job) -> None:
        if not job.is_begun:
            return
        if job.call is None or job.call.done():
            self._leave()
        else:  # nobody waits for it any more, but it goes on and holds its memory
            job.call.add_done_callback(self._forget)

    async def _enter(self) -> None:
        if self.jobs < self.jobs_max:
            self.jobs += 1
            return
        if len(self._places) >= self.waiting_max:
            raise _overloaded()
        place = asyncio.get_running_loop().create_future()
        self._places.append(place)
        try:
            async with asyncio.timeout(self.wait_s_max):
                await place
        except BaseException as error:
            if place.done() and not place.cancelled():
                self._leave()
            else:
                self._places.remove(place)
            if isinstance(error, TimeoutError):
                raise _overloaded() from None
            raise

    def _leave(self) -> None:
        if not _wake_first(self._places):
            self.jobs -= 1

    def _forget(self, call: asyncio.Future[Any]) -> None:
        if not call.cancelled():
            call.exception()
        self._leave()

    async def turn(self) -> None:
        """Returns when it is the caller's turn to do one slice: one caller per turn of the event loop."""
        turn = asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        if len(self._turns) == 1:
            asyncio.get_running_loop().call_soon(self._next_turn)
        await turn

    def _next_turn(self) -> None:
        """Lets the first waiting job do a slice, and calls itself in the next turn of the loop for the one after it."""
        self.slices += _wake_first(self._turns)
        if self._turns:
            asyncio.get_running_loop().call_soon(self._next_turn)

    async def away(self, call: Callable[[], T]) -> T:
        """Calls a function on the worker thread, or here if there is none; returns its result."""
        if self.worker is None:
            return call()
        return await self.worker.run(call)


@dataclass(slots=True)
class _Outcome:
    value: Any


_Step = Callable[[], Any] | None


class _Job:
    def __init__(self, work: HeavyWork) -> None:
        self._work = work
        self.is_begun = False
        self.call: asyncio.Future[Any] | None = None
        """The future of the last function call that was passed to the worker thread; None if there was none."""

    async def go_on(self, steps: Steps[Any], step: _Step) -> _Step | _Outcome:
        """Continues the generator `steps`, which has yielded `step`: calls that function, if it is one, on the worker
        thread, then waits for a turn and runs the generator to its next yield. Returns what it yields there, or its
        outcome if it ends. Raises what it raises."""
        result, failure = None, None
        if step is not None:
            self.call = asyncio.ensure_future(self._work.away(step))
            try:
                result = await asyncio.shield(self.call)
            except Exception as error:  # noqa: BLE001 - it belongs to the steps
                failure = error
        await self._work.turn()
        return _advance(steps, result, failure)


def _advance(steps: Steps[Any], result: Any = None, failure: Exception | None = None) -> _Step | _Outcome:
    try:
        return steps.send(result) if failure is None else steps.throw(failure)
    except StopIteration as end:
        return _Outcome(end.value)


def _wake_first(waiting: deque[asyncio.Future[None]]) -> bool:
    """Wakes the longest waiting future that is not cancelled; returns False if there is none."""
    while waiting:
        first = waiting.popleft()
        if not first.done():
            first.set_result(None)
            return True
    return False


def _overloaded() -> Overloaded:
    return Overloaded("too many large requests are being worked on; try again in a moment")
