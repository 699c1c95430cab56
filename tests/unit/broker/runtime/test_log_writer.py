"""The log writer: one flush of a log at a time, and none while somebody has the log to itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

import pytest

from tidelog.adapters.system import SystemClock
from tidelog.broker.runtime.log_writer import UNAWAITED_S, LogWriter
from tidelog.broker.runtime.stats import Stats
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.loop import run
from tidelog.storage.flush import Flush
from tidelog.storage.open_files import OpenFiles

T = TypeVar("T")


class Gate:
    """A disk thread that works when it is told to."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

    async def run(self, call: Callable[[], T]) -> T:
        await self.open.wait()
        return call()

    async def run_all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        await self.open.wait()
        return [call() for call in calls]


class Told:
    """A clock that shows what it is set to."""

    now_s = 10.0

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return 0


class Log:
    """Counts what is done to it."""

    def __init__(self) -> None:
        self.is_dirty = True
        self.commits_open = 0
        self.flushes = 0

    def begin_flush(self) -> Flush:
        self.commits_open += 1
        return Flush({}, None, 0, 0, 0, OpenFiles(SimDisk(), 8))

    def end_flush(self, flush: Flush, error: OSError | None) -> None:
        self.commits_open -= 1
        self.flushes += 1


class Listener:
    def __init__(self, log: Log) -> None:
        self.log = log
        self.told = 0

    def on_flushed(self) -> None:
        self.told += 1


@pytest.fixture
async def gate() -> Gate:
    return Gate()


@pytest.fixture
async def writer(gate: Gate) -> AsyncIterator[LogWriter]:
    writer = LogWriter(gate, SystemClock(), Stats())
    task = asyncio.ensure_future(writer.run())
    yield writer
    task.cancel()


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_log_is_cut_while_no_flush_of_it_is_under_way_whosever(gate: Gate, writer: LogWriter) -> None:
    log = Log()
    deposed, follower = Listener(log), Listener(log)
    writer.submit(deposed)
    await turns()
    seen: list[int] = []
    cut = asyncio.ensure_future(writer.exclusively(follower, lambda: seen.append(log.commits_open)))
    await turns()
    assert log.commits_open == 1
    gate.open.set()
    await asyncio.wait_for(cut, 5)
    assert seen == [0]
    assert deposed.told == 1


async def test_a_log_that_is_being_cut_is_committed_afterwards(gate: Gate, writer: LogWriter) -> None:
    log, other = Log(), Log()
    cutting, busy = Listener(log), Listener(other)
    cut = asyncio.ensure_future(writer.exclusively(cutting, lambda: None))
    await turns()
    writer.submit(cutting)
    writer.submit(busy)
    await turns()
    assert (log.commits_open, other.commits_open) == (0, 1)
    gate.open.set()
    await asyncio.wait_for(cut, 5)
    await asyncio.wait_for(writer.drain(), 5)
    assert (log.flushes, cutting.told) == (1, 1)


async def test_a_log_is_at_rest_when_nobody_will_be_told_of_it_any_more(gate: Gate, writer: LogWriter) -> None:
    log = Log()
    listener = Listener(log)
    writer.submit(listener)
    resting = asyncio.ensure_future(writer.at_rest(log))
    await turns()
    assert not resting.done()
    gate.open.set()
    await asyncio.wait_for(resting, 5)
    assert listener.told == 1
    await asyncio.wait_for(writer.at_rest(Log()), 5)


def in_virtual_time(story: Callable[[LogWriter], Awaitable[None]]) -> None:
    """Runs a story with a disk that takes no time."""

    async def main() -> None:
        gate = Gate()
        gate.open.set()
        writer = LogWriter(gate, SystemClock(), Stats())
        task = asyncio.ensure_future(writer.run())
        await story(writer)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(main)


def test_what_nobody_waits_for_is_put_off_and_what_somebody_does_is_not() -> None:
    async def story(writer: LogWriter) -> None:
        idle, awaited = Listener(Log()), Listener(Log())
        writer.submit(idle, is_awaited=False)
        writer.submit(awaited)
        await asyncio.sleep(0.9 * UNAWAITED_S)
        assert (idle.told, awaited.told) == (0, 1)
        writer.submit(idle, is_awaited=False)
        await asyncio.sleep(0.2 * UNAWAITED_S)
        assert (idle.told, awaited.told) == (1, 1)

    in_virtual_time(story)


def test_a_log_that_is_awaited_after_all_is_committed_at_once_and_not_again() -> None:
    async def story(writer: LogWriter) -> None:
        listener = Listener(Log())
        writer.submit(listener, is_awaited=False)
        writer.submit(listener)
        writer.submit(listener, is_awaited=False)
        await turns()
        assert listener.told == 1
        await asyncio.sleep(2 * UNAWAITED_S)
        assert listener.told == 1

    in_virtual_time(story)


def test_nothing_is_put_off_once_somebody_waits_for_all_of_it() -> None:
    async def story(writer: LogWriter) -> None:
        now = asyncio.get_running_loop().time
        drained, rested, started_s = Listener(Log()), Listener(Log()), now()
        writer.submit(drained, is_awaited=False)
        await writer.drain()
        writer.submit(rested, is_awaited=False)
        await writer.at_rest(rested.log)
        assert (drained.told, rested.told) == (1, 1)
        assert now() - started_s < UNAWAITED_S

    in_virtual_time(story)


async def test_each_log_of_a_round_is_counted_from_its_first_submission(gate: Gate) -> None:
    clock, stats = Told(), Stats()
    writer = LogWriter(gate, clock, stats)
    listener = Listener(Log())
    for is_awaited in (False, True, False):
        writer.submit(listener, is_awaited=is_awaited)
        clock.now_s += 2
    writer.submit(Listener(Log()))
    clock.now_s += 1
    gate.open.set()
    await writer._round()
    flush = stats.stages.produce_flush
    assert (sum(flush.counts), flush.seconds) == (2, 7.0 + 1.0)
