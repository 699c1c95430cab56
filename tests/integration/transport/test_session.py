"""A client's session, where brokers contradict each other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tidelog.adapters.system import SystemEntropy
from tidelog.model.errors import TimedOutAfterAppend
from tidelog.transport import presence as presence_module
from tidelog.transport import session as session_module
from tidelog.transport.session import ClusterSession

ROUNDS = 2


def document(brokers: Sequence[TestServer], leader: int) -> dict[str, object]:
    """The metadata: a topic of one partition."""
    known = [{"node_id": i, "host": b.host, "port": b.port} for i, b in enumerate(brokers, 1)]
    partition = {"partition": 0, "leader": leader, "leader_epoch": leader, "replicas": [1, 2], "isr": [leader]}
    topic = {"name": "t", "topic_id": "0" * 32, "protocol": "isr", "is_internal": False, "partitions": [partition]}
    return {"cluster_id": "c", "controller_id": 1, "brokers": known, "topics": [topic]}


Answering = Callable[[web.Request], Awaitable[web.Response]]


def serving(answer: Answering, change: Answering | None = None) -> TestServer:
    application = web.Application()
    application.router.add_get("/metadata", answer)
    application.router.add_post("/change", change or answer)
    return TestServer(application)


async def test_a_broker_that_was_left_behind_is_not_asked_for_ever() -> None:
    """Both answer; one is cut off from the others, and goes on telling of a leader that there was."""
    brokers: list[TestServer] = []

    def telling(leader: int) -> TestServer:
        async def answer(_: web.Request) -> web.Response:
            return web.json_response(document(brokers, leader))

        return serving(answer)

    brokers += [telling(1), telling(2)]
    for broker in brokers:
        await broker.start_server()
    session = ClusterSession(",".join(str(broker.make_url("")) for broker in brokers), entropy=SystemEntropy())
    try:
        await session.open()
        leaders = set()
        for _ in range(ROUNDS):
            await session.refresh("t")
            leaders.add(session.leader("t", 0))
            await session.refresh("t")
        assert leaders == {f"http://{broker.host}:{broker.port}" for broker in brokers}
    finally:
        await session.close()
        for broker in brokers:
            await broker.close()


class First(SystemEntropy):
    """Whoever draws gets the least: the client begins with the first broker."""

    def uniform(self, low: float, high: float) -> float:
        return low


async def test_silent_brokers_do_not_keep_a_client_from_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two never answer; to find that out takes longer than each is passed over."""
    monkeypatch.setattr(session_module, "AVOID_S", 0.0)
    brokers: list[TestServer] = []
    silent: set[int] = set()
    over = asyncio.Event()

    def number(this: int) -> TestServer:
        async def answer(_: web.Request) -> web.Response:
            if this in silent:
                await over.wait()
            return web.json_response(document(brokers, 1))

        return serving(answer)

    brokers += [number(1), number(2), number(3)]
    for broker in brokers:
        await broker.start_server()
    session = ClusterSession(str(brokers[0].make_url("")), request_timeout_s=0.5, entropy=First())
    try:
        await session.open()
        silent |= {1, 2}
        assert (await session.metadata("t", timeout_s=20.0)).cluster_id == "c"
    finally:
        over.set()
        await session.close()
        for broker in brokers:
            await broker.close()


@pytest.mark.parametrize("safe", [True, False])
async def test_a_broker_that_hangs_does_not_take_all_the_time_of_a_call(
    monkeypatch: pytest.MonkeyPatch, safe: bool
) -> None:
    """It is chosen, takes what it is sent, and is silent; another one does it, and what must be done once is done
    once."""
    monkeypatch.setattr(presence_module, "QUIET_S", 0.05)
    monkeypatch.setattr(presence_module, "PATIENCE_S_MIN", 0.05)
    brokers: list[TestServer] = []
    over = asyncio.Event()
    hangs: set[int] = set()
    changed: list[int] = []

    def number(this: int) -> TestServer:
        async def answer(_: web.Request) -> web.Response:
            if this in hangs:
                await over.wait()
            return web.json_response(document(brokers, 1))

        async def change(request: web.Request) -> web.Response:
            changed.append(this)
            return await answer(request)

        return serving(answer, change)

    brokers += [number(1), number(2)]
    for broker in brokers:
        await broker.start_server()
    session = ClusterSession(str(brokers[1].make_url("")), request_timeout_s=3600.0, entropy=First())
    try:
        await session.open()
        hangs.add(1)
        await session.call("POST", "/change", body=b"{}", safe=safe)
        assert changed[0] == 1 if safe else changed == [2]
    finally:
        over.set()
        await session.close()
        for broker in brokers:
            await broker.close()


async def test_a_broker_that_is_slow_and_there_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told how much time it has, which is less than the client waits. Its verdict is the client's: too little
    time is left to hear another one."""
    looks = 0
    looked_after = asyncio.Event()
    changes: list[str] = []

    async def answer(_: web.Request) -> web.Response:
        nonlocal looks
        looks += 1
        if looks > 1:  # the first is the client's beginning
            looked_after.set()
        return web.json_response(document([broker], 1))

    async def change(request: web.Request) -> web.Response:
        changes.append(request.query["timeout_ms"])
        await looked_after.wait()
        return web.json_response({"error_code": TimedOutAfterAppend.code, "message": "late"}, status=504)

    broker = serving(answer, change)
    await broker.start_server()
    session = ClusterSession(str(broker.make_url("")), request_timeout_s=30.0, entropy=First())
    try:
        await session.open()
        monkeypatch.setattr(session_module, "VERDICT_S", 29.9)
        with pytest.raises(TimedOutAfterAppend):
            await session.call("POST", "/change", body=b"{}", tells_timeout=True)
        assert len(changes) == 1
        assert 0 < int(changes[0]) < 30_000
    finally:
        looked_after.set()
        await session.close()
        await broker.close()
