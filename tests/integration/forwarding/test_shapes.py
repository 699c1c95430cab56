"""Whatever a client asks of a broker that does not lead, it is told what the leader would have told it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import pytest

from tests.integration.forwarding.conftest import Cluster
from tests.integration.http.conftest import AS_JSON, BINARY_V2, JSON_DOCUMENT, JSON_V2
from tests.integration.http.wire import Reply, Wire
from tidelog.broker.isr.partition import Partition
from tidelog.model.batch_codec import encode_batch
from tidelog.model.records import Record

TIMESTAMP_MS = 1_700_000_000_000
RAW: Mapping[str, str] = {"Content-Type": "application/vnd.tidelog.batches"}
CHUNKED: Mapping[str, str] = {**JSON_DOCUMENT, "Transfer-Encoding": "chunked"}


class Ask(NamedTuple):
    """One request; `{v3}` and `{topic}` in its target are filled in."""

    method: str
    target: str
    body: bytes | None = None
    headers: Mapping[str, str] = {}


def document(value: object) -> bytes:
    return json.dumps(value).encode()


def records(*values: object, **more: object) -> bytes:
    return document({"records": [{"value": value, "timestamp": TIMESTAMP_MS, **more} for value in values]})


def entries(*values: object) -> bytes:
    return document({"entries": [{"id": f"e{i}", **entry(value)} for i, value in enumerate(values)]})


def entry(value: object) -> dict[str, object]:
    return {"timestamp": "2023-11-14T22:13:20Z", "value": {"type": "JSON", "data": value}}


def raw(*values: bytes, producer_id: int = -1, sequence: int = -1) -> bytes:
    header = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence} if producer_id >= 0 else {}
    return bytes(encode_batch([Record(TIMESTAMP_MS, None, value) for value in values], **header))  # type: ignore[arg-type]  # plain ints all


def keyed(headers: Mapping[str, str], key: str = "one") -> Mapping[str, str]:
    return {**headers, "Idempotency-Key": key}


TOPIC = "/topics/{topic}"
PARTITION = "/topics/{topic}/partitions/0"
V3 = "{v3}/topics/{topic}/records"
DAMAGED = raw(b"a")[:-1] + b"?"

PRODUCES: dict[str, list[Ask]] = {
    "v2 to the topic": [Ask("POST", TOPIC, records("a", "b"), JSON_V2)],
    "v2 to the partition": [Ask("POST", PARTITION, records("YQ=="), BINARY_V2)],
    "v2, acks of the leader": [Ask("POST", f"{TOPIC}?acks=1", records("a"), JSON_V2)],
    "v2, no acks": [Ask("POST", f"{TOPIC}?acks=0", records("a"), JSON_V2), Ask("POST", TOPIC, records("b"), JSON_V2)],
    "v2 with a key, repeated": [Ask("POST", TOPIC, records("a"), keyed(JSON_V2))] * 2,
    "v2 with a key, other content": [
        Ask("POST", TOPIC, records("a"), keyed(JSON_V2)),
        Ask("POST", TOPIC, records("b"), keyed(JSON_V2)),
    ],
    "v2, nothing": [Ask("POST", TOPIC, records(), JSON_V2)],
    "v2, too large": [Ask("POST", TOPIC, records("a" * 5_000), JSON_V2)],
    "v2, far too late": [Ask("POST", TOPIC, records("a", timestamp=TIMESTAMP_MS * 100), JSON_V2)],
    "v3 batch": [Ask("POST", f"{V3}:batch", entries("a", 1, None), JSON_DOCUMENT)],
    "v3 batch with a key": [Ask("POST", f"{V3}:batch", entries("a"), keyed(JSON_DOCUMENT))] * 2,
    "v3 stream": [Ask("POST", V3, document(entry("a")) + document(entry("b")), JSON_DOCUMENT)],
    "v3 stream with a bad record": [Ask("POST", V3, document(entry("a")) + b'{"value": 1}', JSON_DOCUMENT)],
    "raw": [Ask("POST", f"{PARTITION}/batches", raw(b"a", b"b") + raw(b"c"), RAW)],
    "raw, no acks": [Ask("POST", f"{PARTITION}/batches?acks=0", raw(b"a"), RAW)],
    "raw with a key": [Ask("POST", f"{PARTITION}/batches", raw(b"a"), keyed(RAW))] * 2,
    "raw with a key, other content": [
        Ask("POST", f"{PARTITION}/batches", raw(b"a"), keyed(RAW)),
        Ask("POST", f"{PARTITION}/batches", raw(b"b"), keyed(RAW)),
    ],
    "raw, idempotent, repeated": [Ask("POST", f"{PARTITION}/batches", raw(b"a", producer_id=7, sequence=0), RAW)] * 2,
    "raw, a gap": [
        Ask("POST", f"{PARTITION}/batches", raw(b"a", producer_id=7, sequence=0), RAW),
        Ask("POST", f"{PARTITION}/batches", raw(b"c", producer_id=7, sequence=5), RAW),
    ],
    "raw, expecting an end": [
        Ask("POST", f"{PARTITION}/batches?expected_end_offset=0", raw(b"a", producer_id=7, sequence=0), RAW),
        Ask("POST", f"{PARTITION}/batches?expected_end_offset=0", raw(b"b"), RAW),
        Ask("POST", f"{PARTITION}/batches?expected_end_offset=0", raw(b"a", producer_id=7, sequence=0), RAW),
        Ask("POST", f"{PARTITION}/batches?expected_end_offset=1", raw(b"c"), RAW),
        Ask("POST", f"{PARTITION}/batches?expected_end_offset=9", raw(b"d"), RAW),
    ],
    "raw, damaged": [Ask("POST", f"{PARTITION}/batches", DAMAGED, RAW)],
    "raw, too large": [Ask("POST", f"{PARTITION}/batches", raw(b"a" * 5_000), RAW)],
    "raw, nothing": [Ask("POST", f"{PARTITION}/batches", b"", RAW)],
    "no such partition": [Ask("POST", f"{TOPIC}/partitions/7", records("a"), JSON_V2)],
}

DELETIONS: dict[str, bytes] = {
    "some": document({"before_offset": 2}),
    "all": document({"before_offset": 5}),
    "beyond the end": document({"before_offset": 6}),
    "nonsense": document({"before_offset": -1}),
}

READS: dict[str, Ask] = {
    "records": Ask("GET", f"{PARTITION}/records?offset=0", None, AS_JSON),
    "records as base64": Ask("GET", f"{PARTITION}/records?offset=1"),
    "records, earliest": Ask("GET", f"{PARTITION}/records?offset=earliest", None, AS_JSON),
    "records, latest": Ask("GET", f"{PARTITION}/records?offset=latest", None, AS_JSON),
    "records by time": Ask("GET", f"{PARTITION}/records?timestamp={TIMESTAMP_MS + 2}", None, AS_JSON),
    "records of the future": Ask("GET", f"{PARTITION}/records?timestamp={TIMESTAMP_MS + 900}", None, AS_JSON),
    "few records": Ask("GET", f"{PARTITION}/records?offset=0&max_bytes=1", None, AS_JSON),
    "records out of range": Ask("GET", f"{PARTITION}/records?offset=1000", None, AS_JSON),
    "no records in time": Ask("GET", f"{PARTITION}/records?offset=latest&timeout=20", None, AS_JSON),
    "batches": Ask("GET", f"{PARTITION}/batches?offset=0"),
    "few batches": Ask("GET", f"{PARTITION}/batches?offset=2&max_bytes=1"),
    "batches, latest": Ask("GET", f"{PARTITION}/batches?offset=latest"),
    "batches out of range": Ask("GET", f"{PARTITION}/batches?offset=1000"),
    "no batches in time": Ask("GET", f"{PARTITION}/batches?offset=latest&wait_ms=20"),
    "a range": Ask("GET", f"{PARTITION}/batches?offset=1&to=4"),
    "a range to the end": Ask("GET", f"{PARTITION}/batches?offset=0&to=100000"),
    "any replica": Ask("GET", f"{PARTITION}/batches?offset=0&replica=any"),
    "any replica's records": Ask("GET", f"{PARTITION}/records?offset=0&replica=any"),
    "offsets, v2": Ask("GET", f"{PARTITION}/offsets"),
    "offsets, v3": Ask("GET", "{v3}/topics/{topic}/partitions/0/offset"),
    "offsets of many": Ask(
        "POST",
        "/offsets",
        document(
            {
                "partitions": [
                    {"topic": "there", "partition": 0},
                    {"topic": "there", "partition": 0, "timestamp": TIMESTAMP_MS + 2},
                    {"topic": "there", "partition": 0, "timestamp": TIMESTAMP_MS + 900},
                    {"topic": "there", "partition": 3},
                    {"topic": "nowhere", "partition": 0},
                ]
            }
        ),
        JSON_DOCUMENT,
    ),
    "offsets after a change": Ask(
        "POST",
        "/offsets",
        document({"partitions": [{"topic": "there", "partition": 0, "high_watermark": 0}], "wait_ms": 20_000}),
        JSON_DOCUMENT,
    ),
    "the topic": Ask("GET", TOPIC),
    "the metadata": Ask("GET", "/metadata?topics={topic}"),
}


async def send(cluster: Cluster, node: int, topic: str, ask: Ask) -> Reply:
    reply = await cluster.nodes[node].ask(
        ask.method, ask.target.format(topic=topic, v3=cluster.sites[1].v3), ask.body, ask.headers
    )
    headers = {name: value for name, value in reply.headers.items() if name not in ("date", "retry-after")}
    body = re.sub(rb"clock \(\d+ ms\)", b"clock", reply.body.replace(cluster.nodes[node].url.encode(), b"BASE"))
    return Reply(reply.status, headers, body)


async def test_producing_through_another_broker_is_as_at_the_leader(cluster: Cluster) -> None:
    for number, (name, asks) in enumerate(PRODUCES.items()):
        here, afar = f"here-{number}", f"afar-{number}"
        for topic in (here, afar):
            await cluster.topic(topic, [1], max_message_bytes="2048")
        for ask in asks:
            at_leader = await send(cluster, 1, here, ask)
            through = await send(cluster, 3, afar, ask)
            assert through.status == at_leader.status, name
            assert through.body.replace(afar.encode(), here.encode()) == at_leader.body, name
        site = cluster.sites[1]
        log, copy = site.partition(here), site.partition(afar)
        await site.until(partial(have_the_same_end, log, copy))  # acks=0 is late
        assert site.values(afar) == site.values(here), name


def have_the_same_end(log: Partition, copy: Partition) -> bool:
    return log.log_end_offset == copy.high_watermark


@pytest.fixture
async def filled(cluster: Cluster) -> Cluster:
    """Topic `there`, led by broker 1: batches of two records each, their timestamps one ms apart."""
    await cluster.topic("there", [1])
    for batch in range(5):
        pair = [Record(TIMESTAMP_MS + batch, b"%d" % batch, b'"%d"' % number) for number in range(2)]
        await send(cluster, 1, "there", Ask("POST", f"{PARTITION}/batches", bytes(encode_batch(pair)), RAW))
    return cluster


async def test_reading_through_another_broker_is_as_at_the_leader(filled: Cluster) -> None:
    for name, ask in READS.items():
        assert await send(filled, 3, "there", ask) == await send(filled, 1, "there", ask), name


async def test_the_receipt_names_the_leader(cluster: Cluster) -> None:
    await cluster.topic("there", [2])
    reply = await send(cluster, 3, "there", PRODUCES["v2 to the topic"][0])
    assert [one["acked_by"] for one in reply.json()["offsets"]] == [[2], [2]]


async def test_a_broker_without_a_copy_says_so(filled: Cluster) -> None:
    local = Ask("GET", f"{PARTITION}/batches?offset=0&replica=local")
    assert (await send(filled, 3, "there", local)).code == 40404
    assert (await send(filled, 1, "there", local)).headers["tidelog-replica"] == "1"
    missing = Ask("GET", f"{TOPIC}/partitions/9/records?offset=0&replica=local")
    assert (await send(filled, 3, "there", missing)).code == 40402
    anyone = Ask("GET", f"{PARTITION}/records?offset=0&replica=any")
    assert (await send(filled, 3, "there", anyone)).headers["tidelog-replica"] == "1"


@pytest.mark.parametrize("cluster", [{"range_piece_bytes": 4_096}], indirect=True)
async def test_a_range_of_many_pieces_streams_through_another_broker(cluster: Cluster) -> None:
    await cluster.topic("there", [1])
    for number in range(20):
        await send(cluster, 1, "there", Ask("POST", f"{PARTITION}/batches", raw(b"%d" % number * 1_000), RAW))
    whole = Ask("GET", f"{PARTITION}/batches?offset=0&to=20")
    through = await send(cluster, 3, "there", whole)
    assert through == await send(cluster, 1, "there", whole)
    assert through.headers["transfer-encoding"] == "chunked"
    assert cluster.net.asked.count((1, "ForwardRead")) > 3


async def test_a_stream_of_records_is_receipted_while_it_is_open(cluster: Cluster) -> None:
    await cluster.topic("there", [1])
    async with await Wire.open(cluster.nodes[3].address) as wire:
        wire.write(
            f"POST {cluster.sites[1].v3}/topics/there/records HTTP/1.1\r\nHost: test\r\n"
            "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        )
        for number in range(3):
            wire.write_chunk(document(entry(number)))
            if number == 0:
                assert (await wire.read_head())[0] == 200
            receipt = json.loads(await wire.read_chunk())
            assert (receipt["offset"], receipt["acked_by"], receipt["durability"]) == (number, [1], "fsynced")
        wire.write_chunk(b"")
        assert await wire.read_chunk() == b""


def _polls() -> list[tuple[str, Callable[[Reply], object]]]:
    known = document({"partitions": [{"topic": "there", "partition": 0, "high_watermark": 0}], "wait_ms": 20_000})
    return [
        (f"GET {PARTITION}/records?offset=0&timeout=20000", lambda reply: reply.json()[0]["value"] == "YQ=="),
        (f"GET {PARTITION}/records?timestamp=5&timeout=20000", lambda reply: reply.json()[0]["offset"] == 0),
        (f"GET {PARTITION}/batches?offset=0&wait_ms=20000", lambda reply: reply.body[-2:-1] == b"a"),
        (f"POST /offsets {known.decode()}", lambda reply: reply.json()["partitions"][0]["high_watermark"] == 1),
    ]


@pytest.mark.parametrize(("request_line", "is_right"), _polls(), ids=["records", "by time", "batches", "offsets"])
async def test_a_long_poll_through_another_broker_ends_when_there_is_data(
    cluster: Cluster, request_line: str, is_right: Callable[[Reply], bool]
) -> None:
    await cluster.topic("there", [1])
    method, target, *body = request_line.split(" ", 2)
    ask = Ask(method, target, body[0].encode() if body else None, JSON_DOCUMENT if body else {})
    polling = asyncio.ensure_future(send(cluster, 3, "there", ask))
    await cluster.sites[1].until(lambda: cluster.nodes[1].purgatory.waiting + _waiting(cluster) == 1)
    await send(cluster, 1, "there", Ask("POST", f"{PARTITION}/batches", raw(b"a"), RAW))
    assert is_right(await polling)


def _waiting(cluster: Cluster) -> int:
    return cluster.sites[1].broker.purgatory.waiting


@pytest.mark.parametrize("body", DELETIONS.values(), ids=DELETIONS)
async def test_deleting_through_another_broker_is_as_at_the_leader(cluster: Cluster, body: bytes) -> None:
    target = f"{{v3}}{PARTITION}/records:delete"
    for topic in ("here", "afar"):
        await cluster.topic(topic, [1])
        await send(cluster, 1, topic, Ask("POST", f"{PARTITION}/batches", raw(b"a", b"b", b"c") + raw(b"d", b"e"), RAW))
    at_leader = await send(cluster, 1, "here", Ask("POST", target, body, JSON_DOCUMENT))
    through = await send(cluster, 3, "afar", Ask("POST", target, body, JSON_DOCUMENT))
    assert through.status == at_leader.status
    assert through.body.replace(b"afar", b"here") == at_leader.body
    site = cluster.sites[1]
    assert site.partition("afar").log_start_offset == site.partition("here").log_start_offset
