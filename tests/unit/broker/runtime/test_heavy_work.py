"""Large work takes turns, is bounded, and gives its place back however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pytest

from tidelog.broker.runtime.heavy_work import HeavyWork
from tidelog.model.errors import InvalidBatch, Overloaded
from tidelog.model.steps import Steps

T = TypeVar("T")


def counting(name: str, slices: int, events: list[str]) -> Steps[str]:
    for number in range(slices):
        events.append(f"{name}{number}")
        yield None
    return name


def calling(call: Callable[[], Any]) -> Steps[Any]:
    return (yield call)


class Worker:
    """Makes its calls when it is told to."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def run(self, call: Callable[[], T]) -> T:
        await self.go.wait()
        return call()

    async def run_all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        return [await self.run(call) for call in calls]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_small_work_ends_at_once() -> None:
    work = HeavyWork(jobs_max=1)
    blocked = asyncio.ensure_future(work.do(calling(lambda: 1)))
    assert await work.do(counting("small", 0, [])) == "small"
    assert not blocked.done()
    assert await blocked == 1
    assert work.jobs == 0


async def test_one_slice_in_each_turn_of_the_loop_whoever_it_belongs_to() -> None:
    work, events = HeavyWork(), list[str]()
    jobs = asyncio.gather(*(work.do(counting(name, 4, events)) for name in "abc"))
    while not jobs.done():
        before = len(events)
        await asyncio.sleep(0)
        assert len(events) - before <= 1 or events[:before] == []  # but for the first slices, which are done at once
    assert events == ["a0", "b0", "c0", "a1", "b1", "c1", "a2", "b2", "c2", "a3", "b3", "c3"]


async def test_jobs_are_bounded_and_begin_in_the_order_they_came() -> None:
    work, events = HeavyWork(jobs_max=1, waiting_max=2), list[str]()
    jobs = [asyncio.ensure_future(work.do(counting(name, 3, events))) for name in "abc"]
    await asyncio.sleep(0)
    assert (work.jobs, work.waiting) == (1, 2)
    with pytest.raises(Overloaded):
        await work.do(counting("d", 3, []))
    assert await asyncio.gather(*jobs) == ["a", "b", "c"]
    assert events[3:] == ["a1", "a2", "b1", "b2", "c1", "c2"]
    assert (work.jobs, work.waiting) == (0, 0)


async def test_nobody_waits_for_ever() -> None:
    worker = Worker()
    work = HeavyWork(worker, jobs_max=1, wait_s_max=0)
    first = asyncio.ensure_future(work.do(calling(lambda: 1)))
    await settle()
    with pytest.raises(Overloaded):
        await work.do(calling(lambda: 2))
    assert work.waiting == 0
    worker.go.set()
    assert await first == 1
    assert work.jobs == 0


async def test_what_fails_elsewhere_fails_in_the_steps() -> None:
    def fail() -> None:
        raise InvalidBatch("no")

    def steps() -> Steps[str]:
        try:
            yield fail
        except InvalidBatch as error:
            return error.message
        return "nothing"

    work = HeavyWork()
    assert await work.do(steps()) == "no"
    with pytest.raises(InvalidBatch):
        await work.do(calling(fail))
    assert work.jobs == 0


async def test_a_place_is_taken_until_its_call_has_ended_though_nobody_waits_for_it() -> None:
    worker = Worker()
    work = HeavyWork(worker, jobs_max=1)
    gone = asyncio.ensure_future(work.do(calling(lambda: 1)))
    waiting = asyncio.ensure_future(work.do(calling(lambda: 2)))
    given_up = asyncio.ensure_future(work.do(calling(lambda: 3)))
    await settle()
    gone.cancel()
    given_up.cancel()
    await settle()
    assert (work.jobs, work.waiting, waiting.done()) == (1, 1, False)
    worker.go.set()
    assert await waiting == 2
    assert work.jobs == 0
