"""Simulated network between group members and brokers: requests arrive late, twice, or not, and answers get lost.

A request that is late or repeated arrives whatever becomes of its sender, who may be dead by then: the class of
faults that sequences and epochs are for (KIP-890, KIP-1251). Every answer is passed to the rules, even if no caller
waits for it any more.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

from tidelog.broker.broker import Broker
from tidelog.groups.decision import GroupAnswer
from tidelog.model.groups import (
    CommitAnswer,
    CommitOffsets,
    DescribeGroup,
    FetchOffsets,
    Heartbeat,
    HeartbeatAnswer,
    OffsetsAnswer,
    pairs,
)
from tidelog.model.ids import TopicPartition
from tidelog.sim.cluster.clients import FAILURES, AnyBroker
from tidelog.sim.cluster.group_traffic import GroupTraffic
from tidelog.sim.cluster.groups.rules import NOT_OWNED, STALE, GroupRules
from tidelog.sim.kit.machine import ConnectionLost
from tidelog.sim.kit.process import outside
from tidelog.sim.kit.tasks import cancel_all

TRIP_S_MAX = 0.005
"""Longest time in seconds that a request is under way, unless its sender is paused meanwhile."""
LATE_S_MAX = 4.0
"""Longest time in seconds by which a late request is delayed."""
Asked: TypeAlias = Heartbeat | CommitOffsets | FetchOffsets | DescribeGroup
REFUSED = {NOT_OWNED: "zombie commit refused", STALE: "late commit refused by its sequence"}


class Post:
    """The network between members and brokers in one run."""

    def __init__(self, traffic: GroupTraffic, rng: random.Random, anywhere: Callable[[], AnyBroker]) -> None:
        self.is_calm = False
        """True once the run is ending: no more faults, and members handle records fast."""
        self._traffic = traffic
        self._rng = rng
        self._anywhere = anywhere
        self._under_way: dict[asyncio.Task[None], None] = {}

    async def ask(self, anywhere: AnyBroker, rules: GroupRules, request: Asked, timeout_s: float) -> GroupAnswer:
        """Sends a request and returns its answer. Raises `Unreachable`, `ConnectionLost`, `TimeoutError`, or the
        `TidelogError` with which the broker refuses."""
        if self._happens(self._traffic.late_rate):
            self._send_later(rules, request, timeout_s)
            await asyncio.sleep(timeout_s * self._rng.random())
            raise ConnectionLost
        if self._happens(self._traffic.twice_rate):
            self._send_later(rules, request, timeout_s)
        await asyncio.sleep(TRIP_S_MAX * self._rng.random())
        async with asyncio.timeout(timeout_s):
            answer = await _deliver(anywhere, rules, request, timeout_s)
        if self._happens(self._traffic.mute_rate):
            raise ConnectionLost
        return answer

    def _happens(self, rate: float) -> bool:
        return self._rng.random() < rate and not self.is_calm

    def _send_later(self, rules: GroupRules, request: Asked, timeout_s: float) -> None:
        task = outside(asyncio.ensure_future, self._arrive_late(rules, request, timeout_s))
        self._under_way[task] = None
        task.add_done_callback(self._arrived)

    def _arrived(self, task: asyncio.Task[None]) -> None:
        del self._under_way[task]
        if not task.cancelled():
            task.result()

    async def _arrive_late(self, rules: GroupRules, request: Asked, timeout_s: float) -> None:
        await asyncio.sleep(LATE_S_MAX * self._rng.random() ** 2)
        with suppress(TimeoutError, *FAILURES):
            async with asyncio.timeout(timeout_s):
                await _deliver(self._anywhere(), rules, request, timeout_s)

    async def close(self) -> None:
        """Cancels the requests that are still under way."""
        await cancel_all(self._under_way)


async def _deliver(anywhere: AnyBroker, rules: GroupRules, request: Asked, timeout_s: float) -> GroupAnswer:
    async def work(broker: Broker) -> GroupAnswer:
        deadline_s = asyncio.get_running_loop().time() + timeout_s  # by the broker's clock
        return await broker.groups.ask(request, deadline_s=deadline_s)

    sent, floors = rules.sends(), rules.floors()
    answer = await anywhere.call(work)
    match request, answer:
        case Heartbeat(), HeartbeatAnswer() if answer.assignment is not None:
            owned = [TopicPartition(*pair) for pair in pairs(answer.assignment)]
            rules.told(answer.member_id, request.instance_id or answer.member_id, answer.member_epoch, owned)
        case CommitOffsets(), CommitAnswer():
            rules.kept(sent, request, answer)
            for verdict in answer.verdicts:
                rules.counters[REFUSED.get(verdict.code, "commit answered")] += 1
        case FetchOffsets(), OffsetsAnswer():
            rules.found(floors, answer)
    return answer
