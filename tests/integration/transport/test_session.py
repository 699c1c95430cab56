"""A client's session, where brokers contradict each other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tidelog.adapters.system import SystemEntropy
from tidelog.transport import session as session_module
from tidelog.transport.session import ClusterSession

ROUNDS = 2


def document(brokers: Sequence[TestServer], leader: int) -> dict[str, object]:
    """The metadata: a topic of one partition."""
    known = [{"node_id": i, "host": b.host, "port": b.port} for i, b in enumerate(brokers, 1)]
    partition = {"partition": 0, "leader": leader, "leader_epoch": leader, "replicas": [1, 2], "isr": [leader]}
    topic = {"name": "t", "topic_id": "0" * 32, "protocol": "isr", "is_internal": False, "partitions": [partition]}
    return {"cluster_id": "c", "controller_id": 1, "brokers": known, "topics": [topic]}


def serving(answer: Callable[[web.Request], Awaitable[web.Response]]) -> TestServer:
    application = web.Application()
    application.router.add_get("/metadata", answer)
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
