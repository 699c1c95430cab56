"""A client's session, where brokers contradict each other."""

from __future__ import annotations

from aiohttp import web
from aiohttp.test_utils import TestServer

from tidelog.adapters.system import SystemEntropy
from tidelog.transport.session import ClusterSession

ROUNDS = 2


async def test_a_broker_that_was_left_behind_is_not_asked_for_ever() -> None:
    """Both answer; one is cut off from the others, and goes on telling of a leader that there was."""
    brokers: list[TestServer] = []

    def telling(leader: int) -> web.Application:
        async def answer(_: web.Request) -> web.Response:
            known = [{"node_id": i, "host": b.host, "port": b.port} for i, b in enumerate(brokers, 1)]
            partition = {"partition": 0, "leader": leader, "leader_epoch": leader, "replicas": [1, 2], "isr": [leader]}
            topic = {
                "name": "t",
                "topic_id": "0" * 32,
                "protocol": "isr",
                "is_internal": False,
                "partitions": [partition],
            }
            document = {"cluster_id": "c", "controller_id": 1, "brokers": known, "topics": [topic]}
            return web.json_response(document)

        application = web.Application()
        application.router.add_get("/metadata", answer)
        return application

    brokers += [TestServer(telling(1)), TestServer(telling(2))]
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
