"""Simulated network between members and the coordinator: requests arrive late, twice, or not, and answers get lost.

Every answer is passed to the rules, even if no caller waits for it any more.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from tidelog.model.errors import TidelogError
from tidelog.sim.groups.plan import GroupPlan
from tidelog.sim.groups.reach import Reach
from tidelog.sim.kit.machine import ConnectionLost
from tidelog.sim.kit.process import outside

T = TypeVar("T")
TRIP_S_MAX = 0.005
LATE_S_MAX = 3.0

Delivery = Callable[[int], Awaitable[T]]
"""Coroutine function that delivers a request to the broker with a node id, and passes the answer to the rules."""


class Post:
    """The network between members and brokers in one run."""

    def __init__(self, plan: GroupPlan, brokers: Reach, rng: random.Random) -> None:
        self.is_calm = False
        """True once faults are over."""
        self._plan = plan
        self._brokers = brokers
        self._rng = rng
        self._under_way: dict[asyncio.Task[None], None] = {}

    async def send(self, node_id: int, deliver: Delivery[T]) -> T:
        """Sends a request and returns the answer. Raises `ConnectionLost`, or the `TidelogError` with which the broker
        refuses."""
        if self._happens():
            self._send_later(deliver)
            await asyncio.sleep(0.3 * self._rng.random())
            raise ConnectionLost
        if self._happens():
            self._send_later(deliver)
        await asyncio.sleep(TRIP_S_MAX * self._rng.random())
        answer = await deliver(node_id)
        if self._happens():
            raise ConnectionLost
        return answer

    def _happens(self) -> bool:
        return not self.is_calm and self._rng.random() < self._plan.late_rate

    def _send_later(self, deliver: Delivery[T]) -> None:
        # Of no process: it arrives even if its sender is paused or dead by then.
        outside(self._start, deliver)

    def _start(self, deliver: Delivery[T]) -> None:
        task = asyncio.ensure_future(self._arrive_late(deliver))
        self._under_way[task] = None
        task.add_done_callback(lambda done: self._under_way.pop(done, None))

    async def _arrive_late(self, deliver: Delivery[T]) -> None:
        await asyncio.sleep(LATE_S_MAX * self._rng.random() ** 2)
        with suppress(TidelogError, ConnectionLost):
            await deliver(self._brokers.leader)

    async def drain(self) -> None:
        """Returns when no request is under way any more."""
        while self._under_way:
            await asyncio.wait(list(self._under_way))
