"""The text form: strings as they are, so that a key is the same key whoever writes it."""

from __future__ import annotations

import pytest

from tests.integration.http.conftest import JSON_V2, Site
from tidelog.producer import Producer

TEXT_V2 = {"Content-Type": "application/vnd.kafka.text.v2+json"}
AS_TEXT = {"Accept": "application/vnd.kafka.text.v2+json"}
KEYS = ["UA", "", "\u00fcber", 'a"b\\', "null", "7"]


async def test_strings_are_stored_as_they_are_and_come_back(site: Site) -> None:
    sent = [{"key": key, "value": key * 2} for key in KEYS]
    sent += [{"value": None}, {"key": None, "value": "x"}, {}]  # type: ignore[dict-item]  # null where a string may be
    for target in ("/topics/t", "/topics/t/partitions/0"):
        reply = await site.post(target, {"records": sent}, TEXT_V2)
        assert (reply.status, len(reply.json()["offsets"])) == (200, len(sent))
    stored = [(record.key, record.value) for record in site.stored()]
    expected = [*((key.encode(), (key * 2).encode()) for key in KEYS), (None, None), (None, b"x"), (None, None)]
    assert stored == expected * 2
    read = await site.get("/topics/t/partitions/0/records?offset=0", AS_TEXT)
    assert read.headers["content-type"] == AS_TEXT["Accept"]
    shown = [(record["key"], record["value"]) for record in read.json()]
    assert shown == [(record.get("key"), record.get("value")) for record in sent] * 2


@pytest.mark.parametrize(
    "body",
    [b'{"records":[{"value":1}]}', b'{"records":[{"key":{}}]}', b'{"records":[{"value":"\xff"}]}',
     b'{"records":[{"value":"\\ud800"}]}'],
)  # fmt: skip
async def test_what_is_no_string_is_refused(site: Site, body: bytes) -> None:
    reply = await site.ask("POST", "/topics/t", body, TEXT_V2)
    assert (reply.status, reply.code) == (400, 40002)
    assert site.values() == []


async def test_a_record_that_is_not_utf_8_is_406_with_its_offset(site: Site) -> None:
    await site.post("/topics/t", {"records": [{"value": "x"}]}, TEXT_V2)
    await site.ask("POST", "/topics/t/partitions/0/batches", site.batch(b"\xff"))
    reply = await site.get("/topics/t/partitions/0/records?offset=0", AS_TEXT)
    assert (reply.status, reply.code) == (406, 40601)
    assert "offset 1" in reply.message


async def test_a_consumer_instance_may_read_text(site: Site) -> None:
    await site.post("/topics/t", {"records": [{"key": "UA", "value": "EWR"}]}, TEXT_V2)
    created = await site.post("/consumers/g", {"name": "i", "format": "TEXT", "auto.offset.reset": "earliest"})
    assert created.status == 200
    instance = "/consumers/g/instances/i"
    assert (await site.post(f"{instance}/assignments", {"partitions": [{"topic": "t", "partition": 0}]})).status == 204
    refused = await site.get(f"{instance}/records", {"Accept": "application/vnd.kafka.json.v2+json"})
    assert (refused.status, refused.code) == (406, 40601)
    assert AS_TEXT["Accept"] in refused.message
    read = await site.get(f"{instance}/records?timeout=5000", AS_TEXT)
    assert read.headers["content-type"] == AS_TEXT["Accept"]
    assert [(record["key"], record["value"]) for record in read.json()] == [("UA", "EWR")]


async def test_a_key_goes_to_the_partition_that_the_producer_gives_it(site: Site) -> None:
    await site.topic("wide", 16)
    host, port = site.address
    async with Producer(f"http://{host}:{port}") as producer:
        receipts = [await (await producer.send("wide", b"x", key=key.encode())) for key in KEYS]
    by_producer = [receipt.partition for receipt in receipts]
    reply = await site.post("/topics/wide", {"records": [{"key": key, "value": "x"} for key in KEYS]}, TEXT_V2)
    assert [receipt["partition"] for receipt in reply.json()["offsets"]] == by_producer
    assert len(set(by_producer)) > 1
    quoted = await site.post("/topics/wide", {"records": [{"key": key, "value": "x"} for key in KEYS]}, JSON_V2)
    assert [receipt["partition"] for receipt in quoted.json()["offsets"]] != by_producer
