"""Threads for blocking disk operations, so that the event loop does not wait for the disk.

Jobs run one after the other; fsyncs that are requested while a job runs become the next job. All threads share the
calls of one job. Fsyncs of several files at a time cost little more than one, since the file system makes them durable
in the same journal transaction; and on a busy machine a thread that blocks waits for a processor after each call.

A job costs the event loop one queue and one wake-up; an executor's future, with its lock and its chain of callbacks,
costs more than the small fsync that it waits for.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from queue import SimpleQueue
from typing import Any, Final, TypeVar, cast

T = TypeVar("T")

THREADS: Final = 4


class DiskThreads:
    """The `BlockingRunner` of production. Its threads are started with the first job."""

    def __init__(self, threads: int = THREADS, *, name: str = "tidelog-disk") -> None:
        """`name` is the name of the threads, of which there are `threads`."""
        assert threads > 0
        self._name = name
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._shared: SimpleQueue[_Job | None] = SimpleQueue()
        """Jobs of several calls for the helper threads. A job is queued once for each helper that it can use."""
        self._helpers = threads - 1
        self._threads: list[threading.Thread] = []
        self._is_closed = False

    async def run(self, call: Callable[[], T]) -> T:
        """Runs one call in a thread and returns its result. Calls run in the order in which they were requested."""
        return (await self.run_all([call]))[0]

    async def run_all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Runs the calls in threads, in any order or at the same time, and returns their results when all have
        ended."""
        assert not self._is_closed
        if not self._threads:
            self._start()
        if not calls:
            return []
        job = _Job(calls)
        self._jobs.put(job)
        return cast("list[T]", await job.done)

    def close(self) -> None:
        """Waits until the requested jobs are done, and ends the threads."""
        self._is_closed = True
        self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    # -- on the threads ----------------------------------------------------------------------------------------------

    def _start(self) -> None:
        works = [self._lead, *[self._help] * self._helpers]
        # Daemons: a thread that hangs in an fsync must not keep the process from ending.
        self._threads = [threading.Thread(target=work, name=self._name, daemon=True) for work in works]
        for thread in self._threads:
            thread.start()

    def _lead(self) -> None:
        """Runs the jobs in order, each with the help of as many threads as it has further calls."""
        while (job := self._jobs.get()) is not None:
            for _ in range(min(self._helpers, len(job.todo) - 1)):
                # One helper for each call beyond the first; a helper that comes too late finds nothing to do.
                self._shared.put(job)
            job.work()
            # The next job begins when all calls of this one have ended, so an fsync never overtakes the ones before it.
            job.over.acquire()
        for _ in range(self._helpers):
            self._shared.put(None)

    def _help(self) -> None:
        while (job := self._shared.get()) is not None:
            job.work()


class _Job:
    """Calls that run together. The thread that ends the last call wakes the event loop."""

    def __init__(self, calls: Sequence[Callable[[], Any]]) -> None:
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[list[Any]] = self._loop.create_future()
        self.todo = deque(enumerate(calls))
        self.over = threading.Lock()
        """Lock that is held until all calls have ended."""
        self.over.acquire()
        self._results: list[Any] = [None] * len(calls)
        self._error: BaseException | None = None
        self._ended = count(1)

    def work(self) -> None:
        """Runs calls of the job until none are left."""
        with suppress(IndexError):
            while True:
                # `deque.popleft` is atomic, so no call is taken twice. An empty one raises, and ends this helper's
                # part.
                number, call = self.todo.popleft()
                self._perform(number, call)

    def _perform(self, number: int, call: Callable[[], Any]) -> None:
        try:
            self._results[number] = call()
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever awaits the job
            self._error = error
        # `count` is atomic, too: one thread alone draws the last number, and settles the job.
        if next(self._ended) == len(self._results):
            # Before the loop is told: the next job may start while the loop is still busy with another turn.
            self.over.release()
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        # Whoever waited has given up. The calls were made all the same: nothing calls a write back.
        if self.done.cancelled():
            return
        if self._error is not None:
            self.done.set_exception(self._error)
        else:
            self.done.set_result(self._results)
        # The error's traceback leads to frames with this job: it lets go of the error, and of what the calls worked on.
        del self.done, self._error
