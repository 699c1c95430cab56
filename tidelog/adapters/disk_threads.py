"""The threads that wait for the disk, so that the event loop need not.

Jobs are done one after the other: while one is under way, fsyncs that are asked for gather. The calls of one job are
shared by all threads. Fsyncs of several files at a time cost little more than one, since the file system makes them
durable with the same transaction of its journal; and a thread that blocks again and again would, on a machine whose
processors are busy, wait for a turn after each.

A job costs the loop one queue and one wake-up; an executor's future, with its lock and its chain of callbacks, costs
more than the small fsync it waits for.
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
    """`BlockingRunner`. Threads are started with the first job."""

    def __init__(self, threads: int = THREADS, *, name: str = "tidelog-disk") -> None:
        """`name` is that of the threads."""
        assert threads > 0
        self._name = name
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._shared: SimpleQueue[_Job | None] = SimpleQueue()
        """Jobs with more calls than one, once for each helper that they may employ."""
        self._helpers = threads - 1
        self._threads: list[threading.Thread] = []
        self._is_closed = False

    async def run(self, call: Callable[[], T]) -> T:
        """See the port."""
        return (await self.run_all([call]))[0]

    async def run_all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """See the port."""
        assert not self._is_closed
        if not self._threads:
            self._start()
        if not calls:
            return []
        job = _Job(calls)
        self._jobs.put(job)
        return cast("list[T]", await job.done)

    def close(self) -> None:
        """Waits for the jobs that were asked for."""
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
        """Does the jobs in their order, with what help each can use."""
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
    """Some calls. Whoever ends the last of them tells the loop."""

    def __init__(self, calls: Sequence[Callable[[], Any]]) -> None:
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[list[Any]] = self._loop.create_future()
        self.todo = deque(enumerate(calls))
        self.over = threading.Lock()
        """Held until all calls have ended."""
        self.over.acquire()
        self._results: list[Any] = [None] * len(calls)
        self._error: BaseException | None = None
        self._ended = count(1)

    def work(self) -> None:
        """Takes calls until there are none."""
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
