"""REST v3 produce: the streamed `records`, with receipts while the body is open, and `records:batch`."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest

from tests.integration.http.conftest import JSON_DOCUMENT, Site, simulated
from tests.integration.http.wire import Reply, Wire, head
from tidelog.model.partitioner import partition_for_key
from tidelog.sim.kit.disk import SimDisk


def record(value: object, **more: object) -> bytes:
    return json.dumps({"value": {"type": "JSON", "data": value}, **more}).encode()


def receipts(body: bytes) -> list[dict[str, Any]]:
    assert body.endswith(b"\r\n")
    return [json.loads(line) for line in body.split(b"\r\n")[:-1]]


async def begin(wire: Wire, site: Site, query: str = "") -> None:
    headers = {"Transfer-Encoding": "chunked", **JSON_DOCUMENT}
    wire.write(head("POST", f"{site.v3}/topics/t/records{query}", headers))


async def test_receipts_come_while_the_body_is_open(site: Site) -> None:
    async with await site.wire() as wire:
        await begin(wire, site)
        wire.write_chunk(record({"a": 1.0}, key={"type": "STRING", "data": "k"}))
        status, headers = await wire.read_head()
        assert (status, headers["transfer-encoding"]) == (200, "chunked")
        (receipt,) = receipts(await wire.read_chunk())
        assert receipt.pop("timestamp").endswith("Z")
        assert receipt == {
            "error_code": 200,
            "cluster_id": site.broker.cluster_id,
            "topic_name": "t",
            "partition_id": 0,
            "offset": 0,
            "key": {"type": "STRING", "size": 1},
            "value": {"type": "JSON", "size": 10},
            "leader_epoch": 0,
            "acked_by": [1],
            "durability": "fsynced",
        }
        for offset in (1, 2, 3):
            wire.write_chunk(record(offset))
            assert receipts(await wire.read_chunk())[0]["offset"] == offset
        wire.write_chunk(b"")
        assert await wire.read_chunk() == b""
        assert (await wire.request("GET", "/topics")).json() == ["t"]  # the connection goes on
    assert site.values() == [b'{"a": 1.0}', b"1", b"2", b"3"]


async def test_records_that_arrive_together_share_batches_and_keep_their_order(site: Site) -> None:
    body = b"\n".join(record(i) for i in range(20_000))
    reply = await site.ask("POST", f"{site.v3}/topics/t/records", body, JSON_DOCUMENT)
    assert [receipt["offset"] for receipt in receipts(reply.body)] == list(range(20_000))
    assert site.values() == [b"%d" % i for i in range(20_000)]
    assert site.broker.stats.appended_batches < 200


async def ask_in_segments(site: Site, body: bytes, segment_bytes: int) -> Reply:
    async with await site.wire() as wire:
        wire.write(head("POST", f"{site.v3}/topics/t/records", {"Content-Length": str(len(body)), **JSON_DOCUMENT}))
        for start in range(0, len(body), segment_bytes):
            await wire.writer.drain()
            await asyncio.sleep(0.02)  # what is sent at once would be one segment
            wire.write(body[start : start + segment_bytes])
        return await wire.read()


async def test_a_record_in_three_segments_is_one_record(site: Site) -> None:
    reply = await ask_in_segments(site, record({"a": '"b" {}'}), 20)
    assert [receipt["offset"] for receipt in receipts(reply.body)] == [0]
    assert site.values() == [b'{"a": "\\"b\\" {}"}']


async def test_a_record_inside_a_string_is_a_string(site: Site) -> None:
    string = f'"}}}}{record("forged").decode()}{{{{"'
    reply = await ask_in_segments(site, record(string), 20)
    assert [receipt["error_code"] for receipt in receipts(reply.body)] == [200]
    assert site.values() == [json.dumps(string).encode()]


async def test_chunks_may_cut_anywhere(site: Site) -> None:
    body = record('\u00e9{}"\\', headers=[{"name": "h", "value": "AA=="}]) + b" \r\n" + record({"x": [1]})
    async with await site.wire() as wire:
        await begin(wire, site)
        for i in range(len(body)):
            wire.write_chunk(body[i : i + 1])
            if i % 7 == 0:
                await wire.writer.drain()
                await asyncio.sleep(0)
        wire.write_chunk(b"")
        reply = await wire.read()
    assert [receipt["offset"] for receipt in receipts(reply.body)] == [0, 1]
    assert site.values() == [json.dumps('\u00e9{}"\\').encode(), b'{"x": [1]}']
    assert site.stored()[0].headers == (("h", b"\x00"),)


@pytest.mark.parametrize(
    ("data", "stored"),
    [
        ({"type": "BINARY", "data": base64.b64encode(b"\xff\x00").decode()}, b"\xff\x00"),
        ({"type": "STRING", "data": "\u00e9"}, "\u00e9".encode()),
        ({"type": "JSON", "data": "s"}, b'"s"'),
        ({"type": "JSON", "data": None}, None),
        ({"type": "BINARY", "data": None}, None),
        ({"type": "STRING"}, None),
        (None, None),
    ],
)
async def test_types_of_data(site: Site, data: object, stored: bytes | None) -> None:
    body = json.dumps({"value": data, "key": data}).encode()
    reply = await site.ask("POST", f"{site.v3}/topics/t/records", body, JSON_DOCUMENT)
    (receipt,) = receipts(reply.body)
    assert receipt["error_code"] == 200
    assert (receipt["value"] is None) == (stored is None)
    (found,) = site.stored()
    assert (found.key, found.value) == (stored, stored)


async def test_placement_and_timestamps(site: Site) -> None:
    await site.topic("u", 3)
    body = (
        record(1, partition_id=2, timestamp="2021-02-05T19:14:42.5Z")
        + record(2, key={"type": "STRING", "data": "k"})
        + record(3)
        + record(4)
    )
    got = receipts((await site.ask("POST", f"{site.v3}/topics/u/records", body, JSON_DOCUMENT)).body)
    assert got[0]["timestamp"] == "2021-02-05T19:14:42.500Z"
    assert [got[0]["partition_id"], got[1]["partition_id"]] == [2, partition_for_key(b"k", 3)]
    assert got[2]["partition_id"] == got[3]["partition_id"]
    assert site.stored("u", 2)[0].timestamp_ms == 1612552482500


BAD_RECORDS = [
    b'{"value":{"type":"BINARY","data":"!"}}',
    b'{"value":{"type":"BINARY","data":5}}',
    b'{"value":{"type":"STRING","data":{}}}',
    b'{"value":{"type":"AVRO","data":"x"}}',
    b'{"value":{"data":"x"}}',
    b'{"valeu":{"type":"JSON","data":1}}',
    b'{"value":1}',
    b'{"partition_id":-1}',
    b'{"partition_id":true}',
    b'{"timestamp":"yesterday"}',
    b'{"timestamp":"1960-01-01T00:00:00Z"}',
    b'{"value":{"type":"JSON","data":' + b"[" * 50_000 + b"]" * 50_000 + b"}}",
    b'{"headers":[{"name":"h","value":"*"}]}',
]


@pytest.mark.parametrize("bad", BAD_RECORDS, ids=lambda bad: bad[:50])
async def test_a_bad_record_gets_its_receipt_and_the_stream_goes_on(site: Site, bad: bytes) -> None:
    reply = await site.ask("POST", f"{site.v3}/topics/t/records", record(1) + bad + record(2), JSON_DOCUMENT)
    first, second, third = receipts(reply.body)
    assert (first["offset"], third["offset"]) == (0, 1)
    assert second.keys() == {"error_code", "message"}
    assert second["error_code"] == 40002
    assert site.values() == [b"1", b"2"]


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (b'{"partition_id":7}', 40402),
        (b'{"key":{"type":"STRING","data":"%b"}}' % (b"k" * 65537), 42206),
        (b'{"headers":[%b]}' % b",".join([b'{"name":"h"}'] * 33), 42206),
        (b'{"headers":[{"name":"%b"}]}' % (b"h" * 1025), 42206),
        (b'{"value":{"type":"STRING","data":"%b"}}' % (b"v" * 1_048_588), 41301),
        (b'{"timestamp":"2999-01-01T00:00:00Z"}', None),
    ],
    ids=lambda it: str(it)[:40],
)
async def test_a_record_that_breaks_a_rule_fails_alone(site: Site, bad: bytes, code: int | None) -> None:
    async with await site.wire() as wire:
        await begin(wire, site)
        for body, expected in ((record(1), 200), (bad, code or 40004), (record(2), 200)):
            wire.write_chunk(body)
            if body == record(1):
                await wire.read_head()
            assert [receipt["error_code"] for receipt in receipts(await wire.read_chunk())] == [expected]
    assert site.values() == [b"1", b"2"]


@pytest.mark.parametrize("end", [b"[", b"]", b"1", b'"', b"}", b"nonsense", b'{"value":'])
async def test_what_is_no_object_ends_the_stream(site: Site, end: bytes) -> None:
    async with await site.wire() as wire:
        await begin(wire, site)
        wire.write_chunk(record(1) + end)
        wire.write_chunk(b"")
        status, _ = await wire.read_head()
        body = b""
        while chunk := await wire.read_chunk():
            body += chunk
        first, last = receipts(body)
        assert (status, first["offset"], last["error_code"] // 100) == (200, 0, 422 if end == b'{"value":' else 400)
        assert await wire.is_closed()
    assert site.values() == [b"1"]


@pytest.mark.parametrize(
    "bad",
    [
        b'{"value":{"type":"JSON","data":"\xff"}}',
        b'{"value":{"type":"JSON","data":NaN}}',
        b'{"a" 1}',
        b"{nonsense}",
        b"]",
    ],
)
async def test_malformed_json_ends_the_answer_and_nobody_waits_for_the_body(site: Site, bad: bytes) -> None:
    """The client sends no end: it may be the answer's end that it waits for."""
    async with await site.wire() as wire:
        await begin(wire, site)
        wire.write_chunk(record(1) + bad + record(2))
        assert (await wire.read_head())[0] == 200
        body = b""
        while chunk := await wire.read_chunk():
            body += chunk
        first, last = receipts(body)
        assert (first["offset"], last["error_code"]) == (0, 40002)
        assert last.keys() == {"error_code", "message"}
        assert await wire.is_closed()
    assert site.values() == [b"1"]
    await site.until_idle()


async def test_malformed_json_at_once_is_an_ordinary_answer(site: Site) -> None:
    async with await site.wire() as wire:
        await begin(wire, site)
        wire.write_chunk(b"{nonsense}")
        reply = await wire.read()
        assert (reply.status, reply.code) == (400, 40002)
        assert await wire.is_closed()


async def test_receipts_of_a_refused_topic_are_as_described(site: Site) -> None:
    """The brokers' own topic takes no records: each gets the receipt that the description has for failures."""
    assert (await site.post("/consumers/g", {"name": "i"})).status == 200
    target = f"{site.v3}/topics/__consumer_offsets/records"
    reply = await site.ask("POST", target, record(1) + record(2), JSON_DOCUMENT)
    assert reply.status == 200
    document = (await site.get("/openapi.json")).json()
    operation = document["paths"]["/v3/clusters/{cluster_id}/topics/{topic}/records"]["post"]
    described = operation["responses"]["200"]["content"]["application/json"]["schema"]["anyOf"]
    names = [one["$ref"].rpartition("/")[2] for one in described]
    assert names == ["ReceiptV3", "FailureV3"]
    failure = document["components"]["schemas"]["FailureV3"]
    for receipt in receipts(reply.body):
        assert receipt["error_code"] == 40002
        assert {*failure["required"]} <= receipt.keys() <= failure["properties"].keys()


@pytest.mark.parametrize(
    ("body", "status"), [(b"", 422), (b" \n", 422), (b"[]", 400), (b'{"value":', 422), (b"nonsense", 400)]
)
async def test_before_the_first_record_an_error_is_an_ordinary_answer(site: Site, body: bytes, status: int) -> None:
    reply = await site.ask("POST", f"{site.v3}/topics/t/records", body, JSON_DOCUMENT)
    assert (reply.status, reply.code is not None) == (status, True)


async def test_an_unknown_topic_is_told_before_the_stream_opens(site: Site) -> None:
    async with await site.wire() as wire:
        wire.write(head("POST", f"{site.v3}/topics/none/records", {"Transfer-Encoding": "chunked"}))
        assert (await wire.read()).code == 40401


async def test_a_record_over_the_bound_ends_the_stream() -> None:
    async with simulated(json_bytes_max=1000) as site, await site.wire() as wire:
        await begin(wire, site)
        wire.write_chunk(record(1) + record("x" * 2000))
        await wire.read_head()
        body = b""
        while chunk := await wire.read_chunk():
            body += chunk
        assert [receipt["error_code"] for receipt in receipts(body)] == [200, 41301]
        assert await wire.is_closed()


async def test_acks_0_gives_receipts_without_offsets(site: Site) -> None:
    for query in ("?acks=0", "?async=true"):
        reply = await site.ask("POST", f"{site.v3}/topics/t/records{query}", record(1), JSON_DOCUMENT)
        (receipt,) = receipts(reply.body)
        assert (receipt["error_code"], receipt["offset"], receipt["durability"]) == (200, None, "none")


async def test_many_large_records_are_split_into_batches_that_fit(site: Site) -> None:
    await site.topic("small", 1, max_message_bytes="2000")
    body = b"".join(record("x" * 900) for _ in range(50))
    got = receipts((await site.ask("POST", f"{site.v3}/topics/small/records", body, JSON_DOCUMENT)).body)
    assert [receipt["offset"] for receipt in got] == list(range(50))
    assert len(site.values("small")) == 50


async def test_a_key_is_refused_on_a_stream(site: Site) -> None:
    headers = {**JSON_DOCUMENT, "Idempotency-Key": "k"}
    reply = await site.ask("POST", f"{site.v3}/topics/t/records", record(1), headers)
    assert (reply.status, site.values()) == (400, [])


async def test_a_client_that_goes_away_leaves_nothing_running(site: Site) -> None:
    wire = await site.wire()
    await begin(wire, site)
    wire.write_chunk(record(1))
    await wire.read_head()
    await wire.read_chunk()
    wire.write(b"5\r\n{")
    await wire.close()
    await site.until_idle()
    assert site.values() == [b"1"]


async def test_bad_chunking_is_never_taken_for_records() -> None:
    async with simulated(stream_idle_s=0.05) as site:
        async with await site.wire() as wire:
            await begin(wire, site)
            wire.write_chunk(record(1))
            await wire.read_head()
            assert receipts(await wire.read_chunk())[0]["offset"] == 0
            wire.write(b"zz\r\n" + record(2))
            assert receipts(await wire.read_chunk())[0]["error_code"] == 40801
            assert await wire.read_chunk() == b""
            assert await wire.is_closed()
        async with await site.wire() as wire:
            await begin(wire, site)
            wire.write(b"zz\r\n")
            assert (await wire.read()).status == 400
            assert await wire.is_closed()
        assert site.values() == [b"1"]


async def test_a_stream_that_finds_no_memory_is_told_what_was_done() -> None:
    async with simulated(body_budget_bytes=5_000) as site, await site.wire() as wire:
        await begin(wire, site)
        wire.write_chunk(record(1))
        await wire.read_head()
        assert receipts(await wire.read_chunk())[0]["offset"] == 0
        wire.write_chunk(b'{"value":{"type":"JSON","data":"' + b"x" * 4000)
        await site.until(lambda: site.gauge("tidelog_http_body_bytes") > 4000)
        wire.write_chunk(b"x" * 2000 + b'"}}')
        assert receipts(await wire.read_chunk())[0]["error_code"] == 50305
        assert await wire.read_chunk() == b""
        assert await wire.is_closed()
        await site.until_idle()
        assert site.values() == [b"1"]


async def test_an_idle_stream_takes_no_memory_from_others(site: Site) -> None:
    async with await site.wire() as wire:
        await begin(wire, site)
        wire.write_chunk(record(1) + b" \n" * 1000)
        await wire.read_head()
        await wire.read_chunk()
        await site.until(lambda: site.gauge("tidelog_http_body_bytes") == 0)


async def test_an_idle_stream_is_ended() -> None:
    async with simulated(stream_idle_s=0.05) as site, await site.wire() as wire:
        await begin(wire, site)
        wire.write_chunk(record(1))
        await wire.read_head()
        await wire.read_chunk()
        assert receipts(await wire.read_chunk())[0]["error_code"] == 40801


async def test_when_all_fails_alike_the_status_says_so() -> None:
    disk = SimDisk()
    async with simulated(disk) as site:
        disk.medium.capacity_bytes = disk.medium.used_bytes
        reply = await site.ask("POST", f"{site.v3}/topics/t/records", record(1) + record(2), JSON_DOCUMENT)
        assert (reply.status, reply.code) == (507, 50701)
        disk.medium.capacity_bytes = 1 << 30
        reply = await site.ask("POST", f"{site.v3}/topics/t/records", record(3), JSON_DOCUMENT)
        assert receipts(reply.body)[0]["offset"] == 0


# -- records:batch -------------------------------------------------------------------------------------------------


def entry(entry_id: str, value: object, **more: object) -> dict[str, object]:
    return {"id": entry_id, "value": {"type": "JSON", "data": value}, **more}


async def test_a_batch_has_a_receipt_for_each_entry(site: Site) -> None:
    bad = {"id": "b", "value": {"type": "BINARY", "data": "!"}}
    entries = [
        entry("a", 1),
        bad,
        entry("c", 3),
        entry("d", 4, partition_id=9),
    ]
    reply = await site.post(f"{site.v3}/topics/t/records:batch", {"entries": entries})
    assert reply.status == 207
    got = reply.json()
    assert [(receipt["id"], receipt["offset"], receipt["error_code"]) for receipt in got["successes"]] == [
        ("a", 0, 200),
        ("c", 1, 200),
    ]
    assert [(failure["id"], failure["error_code"]) for failure in got["failures"]] == [("b", 40002), ("d", 40402)]
    assert site.values() == [b"1", b"3"]


async def test_ten_thousand_entries_are_one_batch(site: Site) -> None:
    entries = [entry(str(i), i) for i in range(10_000)]
    reply = await site.post(f"{site.v3}/topics/t/records:batch", {"entries": entries})
    assert len(reply.json()["successes"]) == 10_000
    assert site.broker.stats.appended_batches == 1
    reply = await site.post(f"{site.v3}/topics/t/records:batch", {"entries": [*entries, entry("x", 1)]})
    assert (reply.status, reply.code) == (422, 42206)


@pytest.mark.parametrize(
    ("document", "status"),
    [
        ({"entries": []}, 422),
        ({"entries": [entry("a", 1), entry("a", 2)]}, 422),
        ({"entries": [entry("", 1)]}, 422),
        ({"entries": [entry("x" * 81, 1)]}, 422),
        ({"entries": [{"value": None}]}, 400),
        ({"entries": [entry("a", 1, extra=1)]}, 400),
        ({"entries": {}}, 400),
        ({}, 400),
    ],
    ids=str,
)
async def test_bad_documents_append_nothing(site: Site, document: object, status: int) -> None:
    reply = await site.post(f"{site.v3}/topics/t/records:batch", document)
    assert (reply.status, site.values()) == (status, [])


async def test_a_batch_under_acks_0_has_no_offsets(site: Site) -> None:
    reply = await site.post(f"{site.v3}/topics/t/records:batch?acks=0", {"entries": [entry("a", 1)]})
    assert (reply.status, reply.json()["successes"][0]["offset"]) == (207, None)


async def test_a_batch_that_fails_alike_says_so_by_its_status() -> None:
    disk = SimDisk()
    async with simulated(disk) as site:
        disk.medium.capacity_bytes = disk.medium.used_bytes
        reply = await site.post(f"{site.v3}/topics/t/records:batch", {"entries": [entry("a", 1), entry("b", 1)]})
        assert (reply.status, reply.code) == (507, 50701)
