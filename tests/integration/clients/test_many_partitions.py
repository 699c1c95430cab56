"""Partitions by the hundred: who writes to another topic meanwhile never sees an error."""

from __future__ import annotations

import asyncio
import json

from tests.integration.http.wire import ask
from tidelog.config.values import split_address
from tidelog.testing.local_cluster import LocalCluster

PARTITIONS = 300
JSON_V2 = {"Content-Type": "application/vnd.kafka.json.v2+json"}


async def test_a_writer_of_another_topic_sees_nothing_of_it_and_a_restart_has_it_all() -> None:
    async with LocalCluster() as cluster:
        address = split_address(cluster.bootstrap.removeprefix("http://").split(",")[0])

        async def post(target: str, document: object) -> int:
            reply = await ask(address, "POST", target, json.dumps(document).encode(), JSON_V2)
            return reply.status

        async def create(name: str, partitions: int) -> int:
            found = json.loads((await ask(address, "GET", "/v3/clusters")).body)
            target = f"/v3/clusters/{found['data'][0]['cluster_id']}/topics"
            body = json.dumps({"topic_name": name, "partitions_count": partitions}).encode()
            return (await ask(address, "POST", target, body, {"Content-Type": "application/json"})).status

        async def write(until: asyncio.Event) -> list[int]:
            found: list[int] = []
            while not until.is_set() or len(found) < 20:
                found.append(await post("/topics/other", {"records": [{"value": len(found)}]}))
            return found

        assert await create("other", 1) == 201
        is_over = asyncio.Event()
        writing = asyncio.ensure_future(write(is_over))
        assert await create("many", PARTITIONS) == 201
        records = [{"value": number, "partition": number} for number in range(PARTITIONS)]
        assert await post("/topics/many", {"records": records}) == 200
        is_over.set()
        assert set(await writing) == {200}
        await asyncio.to_thread(cluster.restart)
        assert await post("/topics/many", {"records": records}) == 200
