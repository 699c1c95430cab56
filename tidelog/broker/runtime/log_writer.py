"""The log writer: one task that makes appended logs durable, on the disk threads, and informs their owners.

While a round of fsyncs runs, appends to the same logs go on; the next round covers them all. So under load
an fsync serves everything written during the one before it, and a lone record waits for one fsync only.

A log whose producers do not wait for the fsync (`ack.durability=replicated`) is flushed `UNAWAITED_S` after it was
written: so its fsyncs do not compete with awaited ones, and each covers more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from tidelog.broker.runtime.histogram import Histogram
from tidelog.broker.runtime.stats import Stats
from tidelog.model.ports import BlockingRunner, Clock
from tidelog.storage.flush import Flush, attempt

UNAWAITED_S = 0.05
"""Seconds that a log may stay unflushed before its flush begins, if nobody waits for it."""


T = TypeVar("T")


class Flushable(Protocol):
    """A log that can be made durable: a `PartitionLog`, or a `SlotStore`."""

    @property
    def is_dirty(self) -> bool: ...

    def begin_flush(self) -> Flush: ...

    def end_flush(self, flush: Flush, error: OSError | None) -> None: ...


class FlushListener(Protocol):
    """The owner of a log, whose `on_flushed` is called when the log has become durable, or has gone offline."""

    @property
    def log(self) -> Flushable: ...

    def on_flushed(self) -> None: ...


class LogWriter:
    """The task that does all fsyncs of a broker."""

    def __init__(self, runner: BlockingRunner, clock: Clock, stats: Stats) -> None:
        self._runner = runner
        self._clock = clock
        self.rounds = Histogram()
        """Histogram of the durations of fsync rounds."""
        self._stats = stats
        self._waiting: dict[FlushListener, float] = {}
        """Monotonic time since when each listener has waited for a flush."""
        self._unawaited: dict[FlushListener, float] = {}
        """The listeners whose flush is not urgent, and waits for the timer `_due`; with the time since when
        they wait."""
        self._due: asyncio.TimerHandle | None = None
        self._in_round: dict[FlushListener, float] = {}
        self._exclusive: list[Flushable] = []
        """Logs that are in exclusive use by a call of `exclusively`."""
        self._wake = asyncio.Event()
        self._round_done = asyncio.Event()

    def submit(self, listener: FlushListener, *, is_awaited: bool = True) -> None:
        """Requests a flush of the listener's log, at once if it is awaited, else after `UNAWAITED_S` at most; then
        `on_flushed` is called."""
        if listener not in self._waiting:
            since_s = self._unawaited.pop(listener, None)
            waiting = self._waiting if is_awaited else self._unawaited
            waiting[listener] = self._clock.monotonic_s() if since_s is None else since_s
        if is_awaited:
            self._wake.set()
        elif self._unawaited and self._due is None:
            self._due = asyncio.get_running_loop().call_later(UNAWAITED_S, self._hurry)

    def _hurry(self) -> None:
        """Makes the flushes urgent that wait for the timer."""
        if self._due is None:
            return
        self._due.cancel()
        self._due = None
        self._waiting |= self._unawaited
        self._unawaited.clear()
        self._wake.set()

    async def run(self) -> None:
        """Does rounds of fsyncs until cancelled. Cancel it only when nothing waits (`drain`)."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._round()
            self._round_done.set()

    async def drain(self) -> None:
        """Returns when no flush is requested or under way."""
        while self._waiting or self._unawaited or self._in_round or self._exclusive:
            self._hurry()
            await self._next_end()

    async def idle(self) -> None:
        """Returns when no urgent flush is requested or under way."""
        while self._waiting or self._in_round or self._exclusive:
            await self._next_end()

    async def perform(self, call: Callable[[], None]) -> None:
        """Runs another blocking call on the disk threads, such as a metainfo write. Raises what it raises."""
        await self._runner.run(call)

    async def perform_all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Runs blocking calls together on the disk threads, and returns their results. Raises what they raise."""
        return await self._runner.run_all(calls)

    async def exclusively(self, listener: FlushListener, call: Callable[[], None]) -> None:
        """Runs a blocking call while no flush of the listener's log is under way, and no other such call. Raises what
        the call raises. If the caller is cancelled, the call still runs to its end, and keeps the log in exclusive use.
        """
        log = listener.log
        while self._is_in_use(log):
            await self._next_end()
        self._exclusive.append(log)
        running = asyncio.ensure_future(self._runner.run(call))
        running.add_done_callback(lambda done: self._end_exclusive(log, done))
        await asyncio.shield(running)

    def _end_exclusive(self, log: Flushable, done: asyncio.Future[None]) -> None:
        self._exclusive.remove(log)
        self._round_done.set()
        self._wake.set()
        if not done.cancelled():
            done.exception()  # of whoever waits, if anybody still does

    async def at_rest(self, log: Flushable) -> None:
        """Returns when no flush of this log is requested or under way, so that its listeners are not called any
        more."""
        while self._is_in_use(log) or any(listener.log is log for listener in (*self._waiting, *self._unawaited)):
            self._hurry()
            await self._next_end()

    def _is_in_use(self, log: Flushable) -> bool:
        return any(listener.log is log for listener in self._in_round) or any(
            exclusive is log for exclusive in self._exclusive
        )

    async def _next_end(self) -> None:
        self._round_done.clear()
        await self._round_done.wait()

    def _take_waiting(self) -> None:
        """Moves the waiting listeners into the next round; those whose log is in exclusive use go on waiting."""
        waiting, self._waiting = self._waiting, {}
        for listener, since_s in waiting.items():
            is_free = not any(log is listener.log for log in self._exclusive)
            (self._in_round if is_free else self._waiting)[listener] = since_s

    async def _round(self) -> None:
        self._take_waiting()
        dirty = [listener for listener in self._in_round if listener.log.is_dirty]
        flushes = [listener.log.begin_flush() for listener in dirty]
        started_s = self._clock.monotonic_s()
        errors = await self._sync(flushes) if flushes else []
        ended_s = self._clock.monotonic_s()
        self._count(flushes, errors, ended_s - started_s)
        for listener, flush, error in zip(dirty, flushes, errors, strict=True):
            listener.log.end_flush(flush, error)
        for listener, since_s in self._in_round.items():
            self._stats.stages.produce_flush.observe(ended_s - since_s)
            listener.on_flushed()
        self._in_round = {}

    async def _sync(self, flushes: list[Flush]) -> list[OSError | None]:
        """Fsyncs the files of all flushes together, then does the rest of each flush (`Flush.run_rest`); returns the
        first error of each, or None."""
        errors: list[OSError | None] = [None] * len(flushes)
        owners = [number for number, flush in enumerate(flushes) for _ in flush.files]
        syncs = [partial(attempt, sync) for flush in flushes for sync in flush.syncs]
        for number, error in zip(owners, await self._runner.run_all(syncs), strict=True):
            errors[number] = errors[number] or error
        unfinished = [number for number, flush in enumerate(flushes) if flush.has_rest and errors[number] is None]
        if unfinished:
            rests = [partial(attempt, flushes[number].run_rest) for number in unfinished]
            for number, error in zip(unfinished, await self._runner.run_all(rests), strict=True):
                errors[number] = error
        return errors

    def _count(self, flushes: list[Flush], errors: list[OSError | None], seconds: float) -> None:
        self._stats.flushes += len(flushes)
        self._stats.fsyncs += sum(flush.fsyncs for flush in flushes)
        self._stats.fsync_bytes += sum(flush.file_bytes for flush in flushes)
        self._stats.fsync_seconds += seconds
        if flushes:
            self.rounds.observe(seconds)
        self._stats.fsync_failures += sum(error is not None for error in errors)
