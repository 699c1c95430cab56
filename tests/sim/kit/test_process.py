"""Several processes on one loop: order within each, clocks of their own, pauses, burials."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from tidelog.sim.kit.loop import SimLoop, run
from tidelog.sim.kit.process import LocalTime, Process, context_of, owned_task

T = TypeVar("T")


def spawn(process: Process, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    return asyncio.get_running_loop().create_task(work, context=context_of(process))


def current() -> SimLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    loop.set_task_factory(owned_task)
    return loop


def interleaving(seed: int) -> list[str]:
    async def main() -> list[str]:
        loop, order = current(), list[str]()
        for name in ("a", "b"):
            for number in range(5):
                loop.call_soon(order.append, f"{name}{number}", context=context_of(processes[name]))
        await asyncio.sleep(0.1)
        return order

    processes = {name: Process(name) for name in ("a", "b")}
    return run(main, seed)


def test_each_process_keeps_its_order_and_a_seed_draws_whose_turn_it_is() -> None:
    orders = {tuple(interleaving(seed)) for seed in range(20)}
    assert len(orders) > 5
    for order in orders:
        assert [name for name in order if name[0] == "a"] == [f"a{number}" for number in range(5)]
    assert interleaving(7) == interleaving(7)


def test_a_process_sleeps_by_its_own_clock() -> None:
    async def main() -> tuple[float, float]:
        loop = current()
        process = Process("fast", LocalTime(rate=1.25))

        async def sleeper() -> float:
            start = loop.time()
            await asyncio.sleep(10)
            return loop.time() - start

        shown = await spawn(process, sleeper())
        return shown, loop.true_time

    shown, true = run(main)
    assert shown == pytest.approx(10)
    assert true == pytest.approx(8)


def test_a_clock_never_goes_back_when_its_rate_changes() -> None:
    clock = LocalTime(2.0)
    before = clock.at(10)
    clock.change_rate(0.5, 10)
    assert clock.at(10) == before == 20
    assert clock.at(12) == 21
    assert clock.until(22, 12) == 14


def test_a_paused_process_runs_nothing_and_is_late_for_all_of_it() -> None:
    async def main() -> list[float]:
        loop, fired = current(), list[float]()
        process = Process("paused")

        async def ticker() -> None:
            for delay in (1, 2, 3):
                loop.call_later(delay, lambda: fired.append(loop.time()))

        await spawn(process, ticker())
        loop.pause(process)
        await asyncio.sleep(10)
        assert fired == []
        loop.resume(process)
        await asyncio.sleep(1)
        return fired

    assert run(main) == pytest.approx([10, 10, 10])


def test_nothing_of_a_buried_process_runs_again() -> None:
    async def main() -> list[str]:
        loop, said = current(), list[str]()
        process = Process("dead")

        async def speak() -> None:
            loop.call_later(1, said.append, "early")
            loop.call_later(3, said.append, "late")

        await spawn(process, speak())
        await asyncio.sleep(2)
        loop.bury(process)
        await asyncio.sleep(5)
        return said

    assert run(main) == ["early"]
