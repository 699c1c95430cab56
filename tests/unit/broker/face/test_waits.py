"""Waits end at their deadline or at the shutdown, and hide no other error."""

from __future__ import annotations

import asyncio

import pytest

from tidelog.broker.face.waits import Waits


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
