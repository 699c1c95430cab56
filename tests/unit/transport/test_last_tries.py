"""The last try before a deadline: one that has no time left would only hide what a broker has said before. On a virtual
clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tidelog.adapters.system import SystemEntropy
from tidelog.log.partition import LogPartition
from tidelog.model.errors import LeaderNotAvailable, Overloaded, TidelogError
from tidelog.sim.kit.loop import run
from tidelog.transport.connections import Answer
from tidelog.transport.errors import ConnectFailed, NoAnswer
from tidelog.transport.offsets import OffsetQuery, wait_for_offsets
from tidelog.transport.security import Security
from tidelog.transport.session import LAST_TRY_S, ClusterSession

NO_LEADER = Answer(503, {}, b'{"error_code":50302,"message":"no leader"}')
UNKNOWN_END = Answer(200, {}, b'{"partitions":[{"topic":"t","partition":0,"error_code":50302,"message":"no leader"}]}')
TIMEOUT_S = 2.0
Respond = Callable[[float], Awaitable[Answer]]


class Broker:
    """Takes the place of all connections: each request gets what `respond` returns for its timeout."""

    def __init__(self, session: ClusterSession, respond: Respond, monkeypatch: pytest.MonkeyPatch) -> None:
        self.timeouts_s: list[float] = []
        self._respond = respond
        monkeypatch.setattr(session._connections, "request", self._request)

    async def _request(self, *_: object, timeout_s: float, **__: Any) -> Answer:
        self.timeouts_s.append(timeout_s)
        return await self._respond(timeout_s)


def in_virtual_time(story: Callable[[ClusterSession], Awaitable[None]]) -> None:
    async def main() -> None:
        session = ClusterSession("http://b:1", request_timeout_s=TIMEOUT_S, entropy=SystemEntropy())
        await story(session)
        await session.close()

    run(main)


def stand_still(session: ClusterSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a moment on that lies in the wait for the next try, it is later than the deadline."""
    loop = asyncio.get_running_loop()
    late_s = [0.0]
    monkeypatch.setattr(session, "_now_s", lambda: loop.time() + late_s[0])
    loop.call_later(0.01, late_s.__setitem__, 0, 2 * TIMEOUT_S)


async def refuse(_: float) -> Answer:
    return NO_LEADER


def test_a_call_that_wakes_up_late_raises_what_the_broker_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(session: ClusterSession) -> None:
        broker = Broker(session, refuse, monkeypatch)
        stand_still(session, monkeypatch)
        with pytest.raises(LeaderNotAvailable, match="no leader"):
            await session.call("GET", "/topics")
        assert broker.timeouts_s == [TIMEOUT_S]

    in_virtual_time(story)


def test_a_call_has_one_try_however_late_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(session: ClusterSession) -> None:
        broker = Broker(session, refuse, monkeypatch)
        with pytest.raises(LeaderNotAvailable, match="no leader"):
            await session.call("GET", "/topics", timeout_s=-1.0)
        assert broker.timeouts_s == [-1.0]

    in_virtual_time(story)


@pytest.mark.parametrize("error", [NoAnswer("none"), ConnectFailed("nobody is there")])
def test_a_broker_that_falls_silent_takes_nothing_back(error: TidelogError, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(session: ClusterSession) -> None:
        async def say_once(timeout_s: float) -> Answer:
            if broker.timeouts_s[1:]:
                await asyncio.sleep(max(timeout_s, 0))
                raise error
            return UNKNOWN_END

        broker = Broker(session, say_once, monkeypatch)
        (entry,) = await wait_for_offsets(session, [OffsetQuery("t", 0)])
        assert isinstance(entry.error, LeaderNotAvailable)
        assert len(broker.timeouts_s) > 1

    in_virtual_time(story)


def test_a_log_is_not_asked_without_time_for_an_answer() -> None:
    async def story() -> None:
        tries_s: list[float] = []

        async def attempt(timeout_s: float) -> None:
            tries_s.append(timeout_s)
            raise Overloaded("busy") if timeout_s > LAST_TRY_S else NoAnswer("none")

        log = LogPartition("http://b:1", "t", 0, request_timeout_ms=5_000, entropy=None, security=Security())
        for timeout_s in (1.0 + number / 40 for number in range(40)):
            with pytest.raises(Overloaded):
                await log.persist(attempt, asyncio.get_running_loop().time() + timeout_s)
        assert len(tries_s) > 40
        with pytest.raises(NoAnswer):
            await log.persist(attempt, asyncio.get_running_loop().time() - 1.0)

    run(story)
