"""Heads that do not end in time: whose deadline passes, in which order, and how many in one turn of the loop."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from tidelog.broker.http.head_deadlines import AT_ONCE, HeadDeadlines

SECONDS = 0.02


class Slow:
    """Notes when its head was called late."""

    late: list[Slow]

    def __init__(self, late: list[Slow]) -> None:
        self.late = late

    def head_is_late(self) -> None:
        self.late.append(self)


async def until_late(late: list[Slow], count: int) -> list[int]:
    """Waits for so many; returns how many were late after each turn of the loop that had some."""
    seen = [0]
    async with asyncio.timeout(10):
        while len(late) < count:
            await asyncio.sleep(0)
            if len(late) > seen[-1]:
                seen.append(len(late))
    return seen


async def test_a_crowd_is_refused_in_the_order_it_began_and_in_turns() -> None:
    heads = HeadDeadlines(asyncio.get_running_loop(), SECONDS)
    late: list[Slow] = []
    crowd = [Slow(late) for _ in range(5 * AT_ONCE + 1)]
    for connection in crowd:
        heads.begin(connection)
        heads.begin(connection)
    seen = await until_late(late, len(crowd))
    assert late == crowd
    assert max(after - before for before, after in pairwise(seen)) <= AT_ONCE


async def test_a_head_that_ended_is_never_late_and_one_that_began_later_has_its_whole_time() -> None:
    loop = asyncio.get_running_loop()
    heads = HeadDeadlines(loop, SECONDS)
    late: list[Slow] = []
    ended, slow, later = (Slow(late) for _ in range(3))
    heads.begin(ended)
    heads.begin(slow)
    heads.end(ended)
    heads.end(ended)
    await asyncio.sleep(SECONDS / 2)
    began_s = loop.time()
    heads.begin(later)
    await until_late(late, 2)
    assert late == [slow, later]
    assert loop.time() - began_s >= SECONDS - 0.002  # a timer may be early by its resolution
