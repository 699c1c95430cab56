"""`Idempotency-Key`: a retry never appends twice, gets the first answer, and a key stands for one content."""

from __future__ import annotations

import json

import pytest

from tests.integration.http.conftest import JSON_V2, Site
from tests.integration.http.wire import Reply

RECORDS = {"records": [{"value": 1}, {"value": 2}]}


def keyed(key: str) -> dict[str, str]:
    return {**JSON_V2, "Idempotency-Key": key}


async def test_a_retry_gets_the_first_answer_and_appends_nothing(site: Site) -> None:
    first = await site.post("/topics/t", RECORDS, keyed("k"))
    assert (await site.post("/topics/t", RECORDS, keyed("k"))).json() == first.json()
    await site.produce("between")
    assert (await site.post("/topics/t", RECORDS, keyed("k"))).json() == first.json()
    assert site.values() == [b"1", b"2", b'"between"']
    other = (await site.post("/topics/t", RECORDS, keyed("k2"))).json()
    assert [receipt["offset"] for receipt in other["offsets"]] == [3, 4]


async def test_the_key_is_remembered_over_a_restart(disk_site: Site) -> None:
    first = (await disk_site.post("/topics/t", RECORDS, keyed("k"))).json()["offsets"]
    await disk_site.restart()
    again = (await disk_site.post("/topics/t", RECORDS, keyed("k"))).json()["offsets"]
    assert [receipt["offset"] for receipt in again] == [receipt["offset"] for receipt in first]
    assert len(disk_site.values()) == 2


async def test_records_without_partition_go_to_the_same_one(site: Site) -> None:
    await site.topic("u", 5)
    for _ in range(5):
        await site.post("/topics/u", RECORDS, keyed("k"))
        await site.produce("other", topic="u")
    assert sum(len([value for value in site.values("u", p) if value != b'"other"']) for p in range(5)) == 2


async def test_a_request_for_several_partitions_is_repeated_whole(site: Site) -> None:
    await site.topic("u", 5)
    document = {"records": [{"key": i, "value": i} for i in range(20)]}
    first = await site.post("/topics/u", document, keyed("k"))
    assert (await site.post("/topics/u", document, keyed("k"))).json() == first.json()
    assert sum(len(site.values("u", partition)) for partition in range(5)) == 20


async def test_other_content_is_refused(site: Site) -> None:
    await site.topic("u", 5)
    await site.post("/topics/u", {"records": [{"value": 1, "partition": 0}]}, keyed("k"))
    for target, document in (
        ("/topics/u", {"records": [{"value": 2, "partition": 0}]}),
        ("/topics/u", {"records": [{"value": 1, "partition": 1}]}),
        ("/topics/u/partitions/0", {"records": [{"value": 1}]}),
    ):
        reply = await site.post(target, document, keyed("k"))
        assert (reply.status, reply.code) == (422, 42209)
    assert [len(site.values("u", partition)) for partition in range(5)] == [1, 0, 0, 0, 0]
    assert (await site.post("/topics/t", RECORDS, keyed("k"))).status == 200  # another topic, another scope


async def test_a_topic_made_again_knows_nothing_of_the_keys_of_the_old_one(site: Site) -> None:
    await site.post("/topics/t", RECORDS, keyed("k"))
    await site.broker.admin.delete_topic("t")
    await site.topic("t")
    assert (await site.post("/topics/t", RECORDS, keyed("k"))).status == 200
    assert site.values() == [b"1", b"2"]


async def test_raw_batches(site: Site) -> None:
    async def send(body: bytes) -> Reply:
        return await site.ask("POST", "/topics/t/partitions/0/batches", body, {"Idempotency-Key": "raw"})

    body = b"".join(site.batch(b"%d" % i, b"x") for i in range(5))
    first = await send(body)
    assert [place["base_offset"] for place in first.json()["batches"]] == [0, 2, 4, 6, 8]
    assert (await send(body)).json() == first.json()
    assert (await send(body[: len(body) // 5])).code == 42209
    assert len(site.values()) == 10


async def test_raw_batches_that_cannot_be_keyed(site: Site) -> None:
    headers = {"Idempotency-Key": "raw"}
    six = site.batch(b"x") * 6
    reply = await site.ask("POST", "/topics/t/partitions/0/batches", six, headers)
    assert (reply.status, reply.code) == (422, 42206)
    numbered = site.batch(b"x", producer_id=5, producer_epoch=0, base_sequence=0)
    reply = await site.ask("POST", "/topics/t/partitions/0/batches", site.batch(b"y") + numbered, headers)
    assert (reply.status, reply.code) == (400, 40002)
    assert site.values() == []


async def test_records_batch_of_v3(site: Site) -> None:
    document = {"entries": [{"id": "a", "value": {"type": "JSON", "data": 1}}]}
    headers = {"Content-Type": "application/json", "Idempotency-Key": "v3"}
    target = f"{site.v3}/topics/t/records:batch"
    first = (await site.post(target, document, headers)).json()["successes"][0]
    again = (await site.post(target, document, headers)).json()["successes"][0]
    assert again["offset"] == first["offset"]
    reply = await site.post(target, {"entries": [{"id": "b", "value": {"type": "JSON", "data": 1}}]}, headers)
    assert (reply.status, reply.code) == (422, 42209)
    assert len(site.values()) == 1


@pytest.mark.parametrize("key", ["", "a b", "\u00e9", "x" * 256, "\x7f"])
async def test_bad_keys(site: Site, key: str) -> None:
    reply = await site.ask("POST", "/topics/t", json.dumps(RECORDS).encode(), keyed(key))
    assert (reply.status, site.values()) == (400, [])


async def test_a_key_under_acks_0_counts_too(site: Site) -> None:
    for _ in range(2):
        assert (await site.post("/topics/t?acks=0", RECORDS, keyed("k"))).status == 204
    await site.produce("end")
    assert site.values() == [b"1", b"2", b'"end"']
