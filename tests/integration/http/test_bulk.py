"""The calls of smart clients: metadata of many topics, offsets of many partitions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.integration.http.conftest import JSON_V2, Site
from tidelog.adapters.system import SystemEntropy
from tidelog.transport.session import ClusterSession


async def test_metadata(site: Site) -> None:
    await site.topic("u", 2)
    everything = (await site.get("/metadata")).json()
    assert everything["cluster_id"] == site.broker.cluster_id
    assert everything["controller_id"] == 1
    host, port = site.address
    assert everything["brokers"] == [{"node_id": 1, "host": host, "port": port, "rack": None, "kafka": None}]
    assert [topic["name"] for topic in everything["topics"]] == ["t", "u"]
    topic = everything["topics"][1]
    assert (topic["topic_id"], topic["protocol"]) == (site.broker.topic("u").topic_id, "isr")
    who = {"leader": 1, "leader_epoch": 0, "replicas": [1], "isr": [1], "elr": [], "voters": []}
    assert topic["partitions"] == [{"partition": 0, **who}, {"partition": 1, **who}]
    some = (await site.get("/metadata?topics=u,none,u")).json()
    assert some["topics"] == [topic]
    assert (await site.get("/metadata?topics=")).json()["topics"] == []
    assert (await site.get("/metadata?topics=a%2fb")).code == 40002


async def test_our_own_clients_understand_it(site: Site) -> None:
    session = ClusterSession(f"http://127.0.0.1:{site.address[1]}", entropy=SystemEntropy())
    await session.open()
    try:
        topic = await session.topic("t")
        assert topic.topic_id == site.broker.topic("t").topic_id
        assert session.leader("t", 0) == f"http://127.0.0.1:{site.address[1]}"
    finally:
        await session.close()


async def _offsets(site: Site, *partitions: dict[str, object], **more: object) -> list[dict[str, Any]]:
    reply = await site.post("/offsets", {"partitions": partitions, **more})
    assert reply.status == 200
    shown: list[dict[str, Any]] = reply.json()["partitions"]
    return shown


async def test_offsets(site: Site) -> None:
    await site.topic("u", 2)
    await site.post("/topics/t", {"records": [{"value": i, "timestamp": i * 1000} for i in range(5)]}, JSON_V2)
    got = await _offsets(
        site,
        {"topic": "t", "partition": 0, "timestamp": 2500},
        {"topic": "u", "partition": 1},
        {"topic": "t", "partition": 0, "timestamp": 9000},
        {"topic": "none", "partition": 0},
        {"topic": "t", "partition": 3},
        {"topic": "a/b", "partition": 0},
    )
    first, empty, late, *errors = got
    assert first == {
        "topic": "t",
        "partition": 0,
        "topic_id": site.broker.topic("t").topic_id,
        "leader": 1,
        "leader_epoch": 0,
        "log_start_offset": 0,
        "high_watermark": 5,
        "log_end_offset": 5,
        "offset": 3,
        "timestamp": 3000,
        "error_code": None,
        "message": None,
    }
    assert (empty["high_watermark"], empty["offset"]) == (0, None)
    assert (late["high_watermark"], late["offset"]) == (5, None)
    assert [error["error_code"] for error in errors] == [40401, 40402, 40002]
    assert all(error["message"] for error in errors)


async def test_waiting_ends_when_any_high_watermark_moves(site: Site) -> None:
    await site.topic("u", 2)
    asked = [{"topic": "u", "partition": partition, "high_watermark": 0} for partition in range(2)]
    waiting = asyncio.ensure_future(_offsets(site, *asked, wait_ms=20_000))
    await site.until(lambda: site.broker.purgatory.waiting == 1)
    await site.post("/topics/u/partitions/1", {"records": [{"value": 1}]}, JSON_V2)
    assert [entry["high_watermark"] for entry in await waiting] == [0, 1]


async def test_waiting_ends_at_once_when_there_is_news_already(site: Site) -> None:
    await site.produce(1)
    known = {"topic": "t", "partition": 0, "high_watermark": 0}
    assert (await _offsets(site, known, wait_ms=20_000))[0]["high_watermark"] == 1
    known = {"topic": "t", "partition": 0, "high_watermark": 1}
    unknown = {"topic": "gone", "partition": 0, "high_watermark": 1}
    assert (await _offsets(site, known, unknown, wait_ms=20_000))[1]["error_code"] == 40401


async def test_waiting_ends_at_its_deadline(site: Site) -> None:
    known = {"topic": "t", "partition": 0, "high_watermark": 0}
    assert (await _offsets(site, known, wait_ms=20))[0]["high_watermark"] == 0


@pytest.mark.parametrize(
    ("document", "status"),
    [
        ({"partitions": []}, 422),
        ({"partitions": [{"topic": "t", "partition": 0}], "wait_ms": 5}, 400),
        ({"partitions": [{"topic": "t", "partition": "0"}]}, 400),
        ({"partitions": [{"topic": "t", "partition": -1}]}, 400),
        ({"partitions": [{"topic": "t", "partition": 0, "timestamp": 2**63}]}, 400),
        ({"partitions": [{"topic": "t"}]}, 400),
        ({"partitions": [{"topic": "t", "partition": 0, "offset": 1}]}, 400),
        ({"partitions": [{"topic": "t", "partition": 0}] * 10_001}, 422),
        ({}, 400),
        ([], 400),
    ],
    ids=lambda it: str(it)[:60],
)
async def test_bad_requests(site: Site, document: object, status: int) -> None:
    assert (await site.post("/offsets", document)).status == status
