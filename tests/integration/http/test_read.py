"""The stateless read: from an offset or a time, in the form asked for, never beyond what is committed."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest

from tests.integration.http.conftest import AS_JSON, JSON_V2, Site, simulated
from tests.integration.http.test_batches import RAW
from tests.integration.http.test_batches import TARGET as BATCHES
from tests.keeping import nothing_kept
from tidelog.model.batch_header import Compression

TARGET = "/topics/t/partitions/0/records"


async def test_offsets_and_order(site: Site) -> None:
    await site.produce(*range(5))
    await site.produce(*range(5, 10))
    for start in (0, 3, 5, 9):
        got = (await site.get(f"{TARGET}?offset={start}", AS_JSON)).json()
        assert [(record["offset"], record["value"]) for record in got] == [(i, i) for i in range(start, 10)]
    assert len((await site.get(f"{TARGET}?offset=earliest", AS_JSON)).json()) == 10
    assert (await site.get(f"{TARGET}?offset=latest", AS_JSON)).json() == []
    reply = await site.get(f"{TARGET}?offset=10", AS_JSON)
    assert (reply.json(), reply.headers["tidelog-high-watermark"]) == ([], "10")
    reply = await site.get(f"{TARGET}?offset=11", AS_JSON)
    assert (reply.status, reply.code) == (416, 41601)
    assert "0 to 10" in reply.message
    assert reply.headers["tidelog-log-end-offset"] == "10"


async def test_the_form_is_what_accept_says(site: Site) -> None:
    await site.produce({"a": [1.0]})
    binary = await site.get(f"{TARGET}?offset=0")
    assert binary.headers["content-type"] == "application/vnd.kafka.binary.v2+json"
    assert base64.b64decode(binary.json()[0]["value"]) == b'{"a": [1.0]}'
    text = await site.get(f"{TARGET}?offset=0", {"Accept": "application/json"})
    assert b'"value":{"a": [1.0]}' in text.body
    reply = await site.get(f"{TARGET}?offset=0", {"Accept": "text/html"})
    assert (reply.status, reply.code) == (406, 40602)


async def test_what_is_not_json_is_named(site: Site) -> None:
    await site.produce(1)
    await site.ask("POST", BATCHES, site.batch(b"{not json", b"\xff", b""), RAW)
    for start in (0, 1):
        reply = await site.get(f"{TARGET}?offset={start}", AS_JSON)
        assert (reply.status, reply.code) == (406, 40601)
        assert "offset 1 " in reply.message
    assert len((await site.get(f"{TARGET}?offset=0")).json()) == 4
    assert (await site.get(f"{TARGET}?offset=0&max_bytes=1", AS_JSON)).json()[0]["value"] == 1


async def test_a_refused_read_keeps_nothing_of_what_it_read(site: Site) -> None:
    await site.ask("POST", BATCHES, site.batch(b"{not json"), RAW)
    with nothing_kept():
        assert (await site.get(f"{TARGET}?offset=0", AS_JSON)).status == 406


async def test_at_least_one_record_however_small_max_bytes_is(site: Site) -> None:
    await site.produce("x" * 1000, "y" * 1000, "z")
    for max_bytes in (0, 1, 900):
        got = (await site.get(f"{TARGET}?offset=0&max_bytes={max_bytes}", AS_JSON)).json()
        assert [record["offset"] for record in got] == [0]
    got = (await site.get(f"{TARGET}?offset=1&max_bytes=1500", AS_JSON)).json()
    assert [record["offset"] for record in got] == [1, 2]


@pytest.mark.parametrize("codec", list(Compression))
async def test_any_codec_is_opened(site: Site, codec: Compression) -> None:
    await site.ask("POST", BATCHES, site.batch(*(b"%d" % i for i in range(100)), compression=codec), RAW)
    got = (await site.get(f"{TARGET}?offset=50", AS_JSON)).json()
    assert [record["value"] for record in got] == list(range(50, 100))


async def test_by_time(site: Site) -> None:
    for timestamp, value in ((1000, "a"), (3000, "b"), (2000, "c"), (5000, "d")):
        await site.post("/topics/t", {"records": [{"value": value, "timestamp": timestamp}]}, JSON_V2)
    for timestamp, offset in ((0, 0), (1000, 0), (1001, 1), (2500, 1), (3001, 3), (5000, 3)):
        got = (await site.get(f"{TARGET}?timestamp={timestamp}", AS_JSON)).json()
        assert got[0]["offset"] == offset
    assert (await site.get(f"{TARGET}?timestamp=5001", AS_JSON)).json() == []


async def test_waiting(site: Site) -> None:
    for query in ("offset=0", "offset=latest", "timestamp=1"):
        start = site.partition().log_end_offset
        if query == "offset=0" and start:
            continue
        waiting = asyncio.ensure_future(site.get(f"{TARGET}?{query}&timeout=20000", AS_JSON))
        if query != "timestamp=1":
            await site.until(lambda: site.broker.purgatory.waiting == 1)
            await site.produce("new")
        assert (await waiting).json()[0]["value"] == "new"
    reply = await site.get(f"{TARGET}?offset=latest&timeout=20", AS_JSON)
    assert (reply.status, reply.json()) == (200, [])


async def test_waiting_for_a_time_that_nothing_has_reached(site: Site) -> None:
    await site.post("/topics/t", {"records": [{"value": "old", "timestamp": 1}]}, JSON_V2)
    waiting = asyncio.ensure_future(site.get(f"{TARGET}?timestamp=1000&timeout=20000", AS_JSON))
    await site.until(lambda: site.broker.purgatory.waiting == 1)
    await site.produce("new")
    assert [record["value"] for record in (await waiting).json()] == ["new"]


async def test_waiting_is_never_longer_than_the_broker_allows() -> None:
    async with simulated(request_timeout_ms_max=30) as site:
        assert (await site.get(f"{TARGET}?offset=0&timeout=9000000000000000000")).json() == []


async def test_what_is_not_committed_is_not_read(site: Site) -> None:
    """Between the high watermark and the log end there is nothing to read, and it is no error to ask."""
    partition = site.partition()
    replies = await asyncio.gather(
        *(site.produce(i, query="?acks=1") for i in range(20)), site.get(f"{TARGET}?offset=0")
    )
    read = replies[-1].json()
    assert len(read) <= int(replies[-1].headers["tidelog-high-watermark"])
    await site.until(lambda: partition.high_watermark == partition.log_end_offset)


async def test_what_retention_took_is_out_of_range(site: Site) -> None:
    await site.topic("r", 1, segment_bytes="1024", retention_bytes="1024")
    for i in range(40):
        await site.produce("x" * 200 + str(i), topic="r")
    partition = site.partition("r", 0)
    partition.apply_retention(site.clock.wall_ms())
    start = partition.log_start_offset
    assert start > 0
    reply = await site.get("/topics/r/partitions/0/records?offset=0")
    assert (reply.status, reply.code, reply.headers["tidelog-log-start-offset"]) == (416, 41601, str(start))
    got = (await site.get("/topics/r/partitions/0/records?offset=earliest", AS_JSON)).json()
    assert got[0]["offset"] == start
    assert (await site.get("/topics/r/partitions/0/offsets")).json() == {"beginning_offset": start, "end_offset": 40}


async def test_replica_says_who_answered(site: Site) -> None:
    await site.produce(1)
    reply = await site.get(f"{TARGET}?offset=0&replica=local")
    assert (len(reply.json()), reply.headers["tidelog-replica"]) == (1, "1")


@pytest.mark.parametrize(
    "query",
    ["", "offset=0&timestamp=0", "offset=-1", "offset=%D9%A4", "offset=1e400", "offset=true",
     "offset=9223372036854775808", "timestamp=-1", "timestamp=now", "offset=0&timeout=-1", "offset=0&timeout=x",
     "offset=0&max_bytes=%2B4", "offset=0&replica=all", "offset=0&offset=0"],
)  # fmt: skip
async def test_bad_parameters(site: Site, query: str) -> None:
    reply = await site.get(f"{TARGET}?{query}")
    assert (reply.status, reply.code) == (400, 40002)


async def test_unknown_parameters_are_ignored(site: Site) -> None:
    assert (await site.get(f"{TARGET}?offset=0&isolation=read_committed&x")).status == 200


async def test_a_large_page_is_whole(site: Site) -> None:
    values = [f"{i:05}" + "x" * 300 for i in range(3000)]
    await site.produce(*values)
    reply = await site.get(f"{TARGET}?offset=0&max_bytes=8000000", AS_JSON)
    assert [record["value"] for record in reply.json()] == values
    json.loads(reply.body)
