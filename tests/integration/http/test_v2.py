"""REST v2: what Confluent's and Strimzi's clients send, and what they get."""

from __future__ import annotations

import base64
import json

import pytest

from tests.integration.http.conftest import AS_JSON, BINARY_V2, JSON_V2, Site
from tidelog.model.partitioner import partition_for_key


async def test_metadata(site: Site) -> None:
    await site.topic("u", 2)
    assert (await site.get("/")).json() == {}
    assert (await site.ask("POST", "/", b"{}")).json() == {}
    assert (await site.ask("POST", "/")).json() == {}
    assert (await site.get("/brokers")).json() == {"brokers": [1]}
    assert (await site.get("/topics")).json() == ["t", "u"]
    topic = (await site.get("/topics/u")).json()
    assert topic["name"] == "u"
    assert topic["configs"]["retention.ms"] == "604800000"
    partition = {
        "partition": 0,
        "leader": 1,
        "replicas": [{"broker": 1, "leader": True, "in_sync": True}],
        "leader_epoch": 0,
    }
    assert topic["partitions"] == [partition, {**partition, "partition": 1}]
    assert (await site.get("/topics/u/partitions")).json() == topic["partitions"]
    reply = await site.get("/topics/u/partitions/1")
    assert reply.json() == topic["partitions"][1]
    assert reply.headers["content-type"] == "application/vnd.kafka.v2+json"
    assert "server" not in reply.headers


async def test_json_records_are_stored_as_they_were_written(site: Site) -> None:
    body = b'{"records":[{"key":"AA","value":{"b": 1.0,"a":1180591620717411303424}},{"value":null},{"value":"x"}]}'
    reply = await site.ask("POST", "/topics/t", body, JSON_V2)
    assert reply.status == 200
    assert reply.json() == {
        "offsets": [
            {
                "partition": 0,
                "offset": offset,
                "error_code": None,
                "error": None,
                "leader_epoch": 0,
                "acked_by": [1],
                "durability": "fsynced",
            }
            for offset in range(3)
        ],
        "key_schema_id": None,
        "value_schema_id": None,
    }
    stored = site.stored()
    assert [(record.key, record.value) for record in stored] == [
        (b'"AA"', b'{"b": 1.0,"a":1180591620717411303424}'),
        (None, None),
        (None, b'"x"'),
    ]
    read = await site.get("/topics/t/partitions/0/records?offset=0", AS_JSON)
    assert b'"key":"AA","value":{"b": 1.0,"a":1180591620717411303424}' in read.body
    assert read.json()[1]["value"] is None


async def test_binary_is_the_default(site: Site) -> None:
    document = {"records": [{"key": base64.b64encode(b"k\xff").decode(), "value": base64.b64encode(b"v").decode()}]}
    for headers in (BINARY_V2, {}, {"Content-Type": "application/vnd.kafka.v2+json"}):
        assert (await site.post("/topics/t", document, headers)).status == 200
    assert [(record.key, record.value) for record in site.stored()] == [(b"k\xff", b"v")] * 3


async def test_headers_and_timestamps_go_in_and_out(site: Site) -> None:
    headers = [{"key": "h", "value": "AAE="}, {"key": "h", "value": None}, {"key": "", "value": ""}]
    record = {"value": 1, "headers": headers, "timestamp": 1000}
    assert (await site.post("/topics/t", {"records": [record]}, JSON_V2)).status == 200
    (read,) = (await site.get("/topics/t/partitions/0/records?offset=0", AS_JSON)).json()
    assert read == {
        "topic": "t",
        "partition": 0,
        "offset": 0,
        "timestamp": 1000,
        "key": None,
        "value": 1,
        "headers": headers,
    }


async def test_records_are_placed_by_partition_then_key_then_together(site: Site) -> None:
    await site.topic("u", 4)
    records = [{"key": f"k{i}", "value": i} for i in range(20)] + [{"value": 0, "partition": 3}]
    offsets = (await site.post("/topics/u", {"records": records}, JSON_V2)).json()["offsets"]
    expected = [partition_for_key(json.dumps(record["key"]).encode(), 4) for record in records[:-1]]
    assert [receipt["partition"] for receipt in offsets] == [*expected, 3]
    for partition in range(4):
        mine = [receipt["offset"] for receipt in offsets if receipt["partition"] == partition]
        assert mine == list(range(len(mine)))
        assert site.partition("u", partition).log_end_offset == len(mine)


async def test_records_without_key_and_partition_stay_together_and_requests_take_turns(site: Site) -> None:
    await site.topic("u", 3)
    seen = []
    for _ in range(6):
        offsets = (await site.produce(1, 2, 3, topic="u")).json()["offsets"]
        (partition,) = {receipt["partition"] for receipt in offsets}
        seen.append(partition)
    assert seen[:3] == seen[3:]
    assert sorted(seen[:3]) == [0, 1, 2]


async def test_one_post_makes_one_batch(site: Site) -> None:
    await site.produce(*range(100))
    fetched = await site.partition().read(0, bytes_max=1)
    assert fetched.next_offset == 100


async def test_produce_to_a_partition(site: Site) -> None:
    await site.topic("u", 2)
    target = "/topics/u/partitions/1"
    assert (
        await site.post(target, {"records": [{"value": 1}, {"key": 2, "value": 2, "partition": 1}]}, JSON_V2)
    ).status == 200
    assert site.values("u", 1) == [b"1", b"2"]
    reply = await site.post(target, {"records": [{"value": 1, "partition": 0}]}, JSON_V2)
    assert (reply.status, reply.code) == (400, 40002)


async def test_acks(site: Site) -> None:
    assert (await site.produce(1, query="?acks=1")).json()["offsets"][0]["durability"] == "leader"
    assert (await site.produce(2, query="?acks=all")).json()["offsets"][0]["durability"] == "fsynced"
    for query in ("?acks=0", "?async=true"):
        reply = await site.produce(3, query=query)
        assert (reply.status, reply.body) == (204, b"")
    await site.produce(4)
    assert site.values() == [b"1", b"2", b"3", b"3", b"4"]


async def test_compression_is_the_topics(site: Site) -> None:
    await site.topic("z", 1, compression_type="zstd")
    await site.produce("x" * 10_000, topic="z")
    fetched = await site.partition("z", 0).read(0, bytes_max=1)
    assert len(fetched.data) < 1000
    assert site.values("z") == [b'"' + b"x" * 10_000 + b'"']


async def test_offsets(site: Site) -> None:
    assert (await site.get("/topics/t/partitions/0/offsets")).json() == {"beginning_offset": 0, "end_offset": 0}
    await site.produce(1, 2, 3)
    assert (await site.get("/topics/t/partitions/0/offsets")).json() == {"beginning_offset": 0, "end_offset": 3}


async def test_log_append_time_is_the_brokers(site: Site) -> None:
    await site.topic("l", 1, message_timestamp_type="LogAppendTime")
    await site.post("/topics/l", {"records": [{"value": 1, "timestamp": 5}]}, JSON_V2)
    (read,) = (await site.get("/topics/l/partitions/0/records?offset=0", AS_JSON)).json()
    assert read["timestamp"] > 1_600_000_000_000


@pytest.mark.parametrize("bad", [{"timestamp": 10**15 * 9}, {"timestamp": 4_102_444_800_000}])
async def test_timestamps_far_off_are_refused(site: Site, bad: dict[str, object]) -> None:
    reply = await site.post("/topics/t", {"records": [{"value": 1, **bad}]}, JSON_V2)
    assert (reply.status, site.values()) == (400, [])


async def test_too_large_for_one_partition_appends_nowhere(site: Site) -> None:
    await site.topic("u", 2, max_message_bytes="1000")
    records = [{"value": "x", "partition": 0}, *({"value": "x" * 300, "partition": 1} for _ in range(4))]
    reply = await site.post("/topics/u", {"records": records}, JSON_V2)
    assert (reply.status, reply.code) == (413, 41301)
    assert "max.message.bytes (1000)" in reply.message
    assert site.values("u", 0) == site.values("u", 1) == []


async def test_internal_order_of_a_request_is_kept_under_concurrency(site: Site) -> None:
    wire = await site.wire()
    async with wire:
        for first in range(0, 100, 10):
            records = [{"value": value} for value in range(first, first + 10)]
            body = json.dumps({"records": records}).encode()
            reply = await wire.request("POST", "/topics/t", body, JSON_V2)
            assert [receipt["offset"] for receipt in reply.json()["offsets"]] == list(range(first, first + 10))
    assert site.values() == [b"%d" % value for value in range(100)]
