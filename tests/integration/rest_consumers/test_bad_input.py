"""Whatever a client sends, it is told what is wrong with it, and nothing happens."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from tests.integration.http.conftest import Site
from tests.integration.rest_consumers.conftest import Client, named


class Bad(NamedTuple):
    """A request to instance `i`, which has subscribed to `t`; `document` as text is sent as it stands."""

    code: int
    method: str
    path: str
    document: Any = None


G = "/consumers/g"
OTHER = f"{G}/instances/other"
OFFSET_MAX = 2**63 - 1

CREATING = [
    Bad(40002, "POST", G, "{"),
    Bad(40002, "POST", G, "[]"),
    Bad(40002, "POST", G, {"nam": "x"}),
    Bad(40002, "POST", G, {"name": "a/b"}),
    Bad(40002, "POST", G, {"name": "x" * 256}),
    Bad(40002, "POST", G, {"name": 1}),
    Bad(40002, "POST", f"/consumers/{'x' * 256}"),
    Bad(40902, "POST", G, {"name": "i"}),
    Bad(40902, "POST", G, {"id": "i"}),
    Bad(42204, "POST", G, {"format": "avro"}),
    Bad(42204, "POST", G, {"auto.offset.reset": "first"}),
    Bad(42204, "POST", G, {"auto.commit.enable": "yes"}),
    Bad(42204, "POST", G, {"auto.commit.enable": True, "enable.auto.commit": False}),
    Bad(42204, "POST", G, {"fetch.min.bytes": "ten"}),
    Bad(42204, "POST", G, {"fetch.min.bytes": -2}),
    Bad(42204, "POST", G, {"fetch.min.bytes": 10_000_001}),
    Bad(42204, "POST", G, {"consumer.request.timeout.ms": -1}),
    Bad(42204, "POST", G, {"consumer.request.timeout.ms": "99999999"}),
]
READING = [
    Bad(42206, "POST", "subscription", {}),
    Bad(42206, "POST", "subscription", {"topics": []}),
    Bad(42206, "POST", "subscription", {"topics": ["t"], "topic_pattern": "t"}),
    Bad(40002, "POST", "subscription"),
    Bad(40002, "POST", "subscription", {"topics": ["a b"]}),
    Bad(40002, "POST", "subscription", {"topics": "t"}),
    Bad(40002, "POST", "subscription", {"topic_pattern": "("}),
    Bad(40903, "POST", "assignments", {"partitions": named(0)}),
    Bad(40401, "POST", "assignments", {"partitions": [{"topic": "none", "partition": 0}]}),
    Bad(40402, "POST", "assignments", {"partitions": named(7)}),
    Bad(40002, "POST", "assignments", {"partitions": named(-1)}),
    Bad(40002, "POST", "assignments", {"partitions": [{"topic": "t"}]}),
    Bad(42206, "POST", "positions", {}),
    Bad(40002, "POST", "positions", {"offsets": named(0, offset=-1)}),
    Bad(40002, "POST", "positions", {"offsets": named(0, offset=OFFSET_MAX + 1)}),
    Bad(40002, "POST", "positions", {"timestamps": named(0, timestamp="noon")}),
    Bad(40903, "POST", "positions", {"offsets": named(1, offset=0)}),
    Bad(40903, "POST", "positions/beginning", {"partitions": named(1)}),
    Bad(40002, "POST", "positions/end", {"partitions": [{"partition": 0}]}),
    Bad(40400, "POST", "positions/middle", {}),
    Bad(40501, "DELETE", "positions/end"),
    Bad(40002, "GET", "records?timeout=-1"),
    Bad(40002, "GET", "records?max_bytes=few"),
    Bad(40002, "GET", "records?timeout=1&timeout=2"),
]
COMMITTING = [
    Bad(42206, "POST", "offsets", {"offsets": named(0)}),
    Bad(42206, "POST", "offsets", {"offsets": named(0, offset=1, next_offset=2)}),
    Bad(42206, "POST", "offsets", {"offsets": [*named(0, offset=1), *named(0, offset=2)]}),
    Bad(40002, "POST", "offsets", {"offsets": named(0, offset="1")}),
    Bad(40915, "POST", "offsets", {"offsets": [*named(0, offset=1), *named(1, offset=1)]}),
    Bad(42212, "POST", "offsets", {"offsets": named(0, offset=1, metadata="m" * 4_097)}),
    Bad(40002, "POST", "offsets?async=maybe"),
    Bad(40402, "GET", "offsets"),
    Bad(40002, "GET", "offsets", {"partitions": [{}]}),
]
GONE = [
    Bad(40403, "DELETE", OTHER),
    Bad(40403, "GET", f"{OTHER}/subscription"),
    Bad(40403, "POST", f"{OTHER}/subscription", {"topics": ["t"]}),
    Bad(40403, "DELETE", f"{OTHER}/subscription"),
    Bad(40403, "GET", f"{OTHER}/assignments"),
    Bad(40403, "GET", f"{OTHER}/records"),
    Bad(40403, "POST", f"{OTHER}/offsets"),
    Bad(40403, "POST", f"{OTHER}/offsets?async=true"),
    Bad(40403, "GET", f"{OTHER}/offsets", {"partitions": named(0)}),
    Bad(40403, "POST", f"{OTHER}/positions/end", {"partitions": []}),
]


async def send(client: Client, bad: Bad) -> Any:
    body = bad.document.encode() if isinstance(bad.document, str) else None
    if body is not None:
        return await client._ask(bad.method, bad.path, body, {})
    return await client.send(bad.method, bad.path, bad.document)


async def test_it_is_refused_and_nothing_happens(site: Site, client: Client) -> None:
    await client.create()
    await client.subscribe()
    await site.produce("a", "b")
    await client.commit(*named(0, offset=0))
    for bad in (*CREATING, *READING, *COMMITTING, *GONE):
        reply = await send(client, bad)
        assert (reply.code, reply.status) == (bad.code, bad.code // 100), (bad, reply.body)
        assert len(reply.message) > 10
    assert await client.committed() == {0: 1}
    assert await client.values() == ["a", "b"]
    assert site.broker.rest_consumers.instances == 1


async def test_media_types(site: Site, client: Client) -> None:
    await client.create()
    await client.subscribe()
    await site.produce("a")
    document = json.dumps({"topics": ["t"]}).encode()
    for kind, status in (
        ("application/vnd.kafka.v2+json", 204),
        ("application/vnd.kafka.json.v2+json", 204),
        ("application/json; charset=utf-8", 204),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
    ):
        reply = await client._ask("POST", f"{client.path}/subscription", document, {"Content-Type": kind})
        assert reply.status == status, kind
    for accept, code in (
        ("application/vnd.kafka.binary.v2+json", 40601),
        ("application/vnd.kafka.v2+json", 40601),
        ("application/vnd.kafka.avro.v2+json", 40602),
        ("application/json", None),
        ("application/vnd.kafka.binary.v2+json, */*;q=0.1", None),
    ):
        assert (await client.send("GET", "records", Accept=accept)).code == code, accept
    deleted = await client._ask("DELETE", client.path, None, {"Content-Type": "application/vnd.kafka.v2+json"})
    assert deleted.status == 204
