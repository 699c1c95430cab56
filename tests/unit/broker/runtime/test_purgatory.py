"""A waiting read is woken by each change of its partitions, and by none after it has left."""

from __future__ import annotations

import asyncio

import pytest

from tidelog.broker.runtime.purgatory import Purgatory, Watchers
from tidelog.model.errors import Overloaded


def test_a_function_is_called_at_each_change_until_it_is_discarded() -> None:
    watchers, calls = Watchers(), list[str]()

    def first() -> None:
        calls.append("first")
        watchers.discard(second)

    def second() -> None:
        calls.append("second")

    watchers.add(first)
    watchers.add(second)
    watchers.wake_all()
    watchers.wake_all()
    assert calls == ["first", "second", "first"]
    watchers.discard(first)
    watchers.discard(first)
    watchers.wake_all()
    assert len(calls) == 3 and not watchers


async def test_a_wait_is_woken_once_and_leaves_nothing_behind() -> None:
    watchers = Watchers()
    waiting = asyncio.ensure_future(watchers.wait())
    await asyncio.sleep(0)
    watchers.wake_all()
    await waiting
    assert not watchers


async def test_a_read_waits_until_it_is_ready_or_for_its_deadline() -> None:
    loop, purgatory, watched, ready = asyncio.get_running_loop(), Purgatory(), [Watchers(), Watchers()], list[bool]()
    waiting = asyncio.ensure_future(purgatory.wait(watched, lambda: bool(ready), loop.time() + 60))
    for _ in range(3):
        await asyncio.sleep(0)
        watched[0].wake_all()
    assert purgatory.waiting == 1 and not waiting.done()
    ready.append(True)
    watched[1].wake_all()
    await waiting
    await purgatory.wait(watched, lambda: False, loop.time() + 0.001)
    assert purgatory.waiting == 0 and not any(watched)


def test_no_more_reads_wait_than_may() -> None:
    purgatory, watchers = Purgatory(waiters_max=1), Watchers()
    purgatory.watch([watchers], print)
    with pytest.raises(Overloaded):
        purgatory.watch([watchers], repr)  # type: ignore[arg-type]  # never called
    purgatory.unwatch([watchers], print)
    assert purgatory.waiting == 0 and not watchers
    purgatory.watch([watchers], print)
