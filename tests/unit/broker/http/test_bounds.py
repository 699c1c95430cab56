"""The window of a stream holds its bounds."""

from __future__ import annotations

import asyncio

from tidelog.broker.http.stream_window import ITEMS_MAX, Arrived, Window


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
