"""Budgets, waits and the window of a stream hold their bounds."""

from __future__ import annotations

import asyncio

import pytest

from tidelog.broker.http.context import Waits
from tidelog.broker.http.stream_window import ITEMS_MAX, Arrived, Window
from tidelog.broker.runtime.budget import ByteBudget
from tidelog.model.errors import Overloaded


def test_a_budget_gives_what_it_has() -> None:
    budget = ByteBudget(100, "tests")
    budget.take(60)
    budget.take(40)
    with pytest.raises(Overloaded, match="memory for tests"):
        budget.take(1)
    budget.give_back(40)
    budget.take(1)
    assert budget.used == 61


def test_a_free_budget_lets_anything_in_so_that_nothing_is_refused_for_ever() -> None:
    budget = ByteBudget(100, "tests")
    budget.take(1000)
    with pytest.raises(Overloaded):
        budget.take(1)
    budget.give_back(1000)
    assert budget.used == 0


async def test_a_wait_ends_by_itself_at_the_deadline_or_at_the_end_of_all() -> None:
    loop = asyncio.get_running_loop()
    waits = Waits()
    async with waits.until(loop.time() + 60):
        assert len(waits) == 1
    async with waits.until(loop.time() + 0.001):
        await asyncio.Event().wait()
    loop.call_soon(waits.end_all)
    async with waits.until(loop.time() + 60):
        await asyncio.Event().wait()
    assert len(waits) == 0
    assert waits.is_ended
    async with waits.until(loop.time() + 60):
        await asyncio.Event().wait()  # nobody begins to wait any more


async def test_a_wait_hides_no_other_error() -> None:
    waits = Waits()
    with pytest.raises(TimeoutError, match="mine"):
        async with waits.until(asyncio.get_running_loop().time() + 60):
            raise TimeoutError("mine")
    task = asyncio.ensure_future(_wait_for_ever(waits))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(waits) == 0


async def _wait_for_ever(waits: Waits) -> None:
    async with waits.until(asyncio.get_running_loop().time() + 60):
        await asyncio.Event().wait()


async def test_a_window_makes_the_reader_wait_and_loses_nothing() -> None:
    window = Window(100)
    await window.put(Arrived(90))
    second = asyncio.ensure_future(window.put(Arrived(20)))
    await asyncio.sleep(0)
    assert not second.done()
    assert [item.size for item in await window.take()] == [90]
    await second
    window.close()
    assert [item.size for item in await window.take()] == [20]
    assert await window.take() == []


async def test_one_item_of_any_size_fits_a_window() -> None:
    window = Window(100)
    await window.put(Arrived(1000))
    assert len(await window.take()) == 1


async def test_a_window_hands_out_so_many_at_a_time() -> None:
    window = Window(1 << 20)
    for _ in range(ITEMS_MAX + 1):
        await window.put(Arrived(1))
    assert len(await window.take()) == ITEMS_MAX
    assert len(await window.take()) == 1
