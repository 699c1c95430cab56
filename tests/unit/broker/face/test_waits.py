"""Waits end at their deadline or at the shutdown, and hide no other error."""

from __future__ import annotations

import asyncio
import math
from functools import partial
from typing import Any

import pytest

from tidelog.broker.face.waits import ENDED_PER_TURN, TICK_S, Waits


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


async def test_waits_that_end_together_share_a_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, waits, ended, timers = asyncio.get_running_loop(), Waits(), list[int](), list[float]()
    call_at = loop.call_at

    def counted(when: float, *call: Any) -> asyncio.TimerHandle:
        timers.append(when)
        return call_at(when, *call)

    monkeypatch.setattr(loop, "call_at", counted)
    deadline_s = (math.ceil(loop.time() / TICK_S) + 2) * TICK_S
    for number in range(1_000):
        waits.begin(deadline_s - TICK_S / 2, partial(ended.append, number))
    assert len(timers) == 1 and timers[0] >= deadline_s - TICK_S / 2
    while not ended:
        await asyncio.sleep(0)
    assert len(ended) == ENDED_PER_TURN, "others have their turn before the next"
    while len(waits):
        await asyncio.sleep(0)
    assert ended == list(range(1_000))


async def test_a_wait_that_has_left_is_not_ended_even_by_one_that_ends_with_it() -> None:
    loop, waits, ended = asyncio.get_running_loop(), Waits(), list[str]()
    deadline_s = loop.time() + TICK_S

    def first() -> None:
        ended.append("first")
        waits.leave(tick, second)
        waits.leave(tick, second)

    def second() -> None:
        ended.append("second")

    tick = waits.begin(deadline_s, first)
    assert waits.begin(deadline_s, second) == tick and len(waits) == 2
    while len(waits):
        await asyncio.sleep(0)
    assert ended == ["first"]


async def test_the_shutdown_ends_all_and_who_begins_later() -> None:
    loop, waits, ended = asyncio.get_running_loop(), Waits(), list[int]()
    for number in range(100):
        waits.begin(loop.time() + 60 + number, partial(ended.append, number))
    waits.end_all()
    assert not ended, "not amid the shutdown"
    waits.begin(loop.time() + 60, partial(ended.append, 100))
    while len(waits):
        await asyncio.sleep(0)
    assert sorted(ended) == list(range(101))
