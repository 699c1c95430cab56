"""The way from members to the coordinator and back: requests arrive late, twice, or not, and answers get lost.

Whatever arrives is judged by the rules, also if nobody is left to hear of it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from tidelog.model.errors import TidelogError
from tidelog.sim.groups.brokers import Brokers
from tidelog.sim.groups.plan import Scenario
from tidelog.sim.kit.machine import ConnectionLost

T = TypeVar("T")
TRIP_S_MAX = 0.005
LATE_S_MAX = 3.0

Delivery = Callable[[int], Awaitable[T]]
"""Brings a request to a broker, by its node id, and the answer to the rules."""


class Post:
    """The post of one run."""

    def __init__(self, scenario: Scenario, brokers: Brokers, rng: random.Random) -> None:
        self.is_calm = False
        """No faults any more."""
        self._scenario = scenario
        self._brokers = brokers
        self._rng = rng
        self._under_way: dict[asyncio.Task[None], None] = {}

    async def send(self, node_id: int, deliver: Delivery[T]) -> T:
        """Returns the answer. Raises what the broker does, and `ConnectionLost`."""
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
        return not self.is_calm and self._rng.random() < self._scenario.late_rate

    def _send_later(self, deliver: Delivery[T]) -> None:
        task = asyncio.ensure_future(self._arrive_late(deliver))
        self._under_way[task] = None
        task.add_done_callback(lambda done: self._under_way.pop(done, None))

    async def _arrive_late(self, deliver: Delivery[T]) -> None:
        await asyncio.sleep(LATE_S_MAX * self._rng.random() ** 2)
        with suppress(TidelogError, ConnectionLost):
            await deliver(self._brokers.leader)

    async def drain(self) -> None:
        """Returns when nothing is under way any more."""
        while self._under_way:
            await asyncio.wait(list(self._under_way))
