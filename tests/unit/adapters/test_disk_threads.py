"""The disk threads: jobs in turn, calls of a job together, and nothing of it noticed by who stopped waiting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.keeping import nothing_kept
from tidelog.adapters.disk_threads import THREADS, DiskThreads

PATIENCE_S = 20


@pytest.fixture
def disk() -> Iterator[DiskThreads]:
    threads = DiskThreads()
    yield threads
    threads.close()


async def test_a_result_or_an_error_comes_back(disk: DiskThreads) -> None:
    assert await disk.run(lambda: 7) == 7
    with pytest.raises(OSError, match="full"):
        await disk.run(lambda: _fail(OSError("full")))
    assert await disk.run_all([]) == []


async def test_an_error_keeps_nothing_of_its_call(disk: DiskThreads) -> None:
    await disk.run(lambda: None)
    with nothing_kept(ValueError):
        with suppress(ValueError):
            await disk.run(lambda: bytes([256]))
        await disk.run(lambda: None)  # and by now the threads have let go of the one before


def _fail(error: OSError) -> None:
    raise error


async def test_calls_of_a_job_run_at_the_same_time_and_their_results_are_in_order(disk: DiskThreads) -> None:
    met = threading.Barrier(THREADS, timeout=PATIENCE_S)
    assert sorted(await disk.run_all([met.wait] * THREADS)) == list(range(THREADS))
    assert await disk.run_all([lambda n=n: n for n in range(50)]) == list(range(50))  # type: ignore[misc]  # bound early


async def test_a_job_begins_when_the_one_before_it_has_ended(disk: DiskThreads) -> None:
    held, done = threading.Event(), list[str]()

    def first() -> None:
        assert held.wait(PATIENCE_S)
        done.append("first")

    jobs = [
        asyncio.ensure_future(disk.run_all([lambda: None, first])),
        asyncio.ensure_future(disk.run(lambda: done.append("second"))),
    ]
    await asyncio.sleep(0)
    held.set()
    await asyncio.gather(*jobs)
    assert done == ["first", "second"]


async def test_a_call_goes_through_though_nobody_waits_for_it(disk: DiskThreads) -> None:
    held, done = threading.Event(), threading.Event()

    def call() -> None:
        assert held.wait(PATIENCE_S)
        done.set()

    waiting = asyncio.ensure_future(disk.run(call))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    held.set()
    await disk.run(lambda: None)
    assert done.is_set()


async def test_closing_waits_for_what_was_asked_for() -> None:
    disk, done = DiskThreads(), list[int]()
    jobs = [asyncio.ensure_future(disk.run_all([lambda: done.append(1)] * 3)) for _ in range(3)]
    await asyncio.sleep(0)
    disk.close()
    assert len(done) == 9
    await asyncio.gather(*jobs)
