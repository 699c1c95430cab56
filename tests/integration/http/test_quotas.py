"""Shares over real sockets: what is over one is refused with 429, nothing of it is done, and nobody else notices.

Rates are so low that a second of a slow machine pays nothing back that matters.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from random import Random

import pytest

from tests.integration.http.conftest import JSON_DOCUMENT, JSON_V2, Site, simulated
from tests.integration.http.wire import Reply, Wire, head
from tidelog.broker.face.shares import Client
from tidelog.controller.access_commands import StoreToken
from tidelog.controller.commands import QuotaChange
from tidelog.model.access import ANONYMOUS, Principal
from tidelog.producer import Producer
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.environment import SimRunner
from tidelog.transport.errors import DeliveryExpired

SLOW = 0.001
"""A unit in 17 minutes."""
CHUNKED = {"Transfer-Encoding": "chunked"}
BATCHES = {"Content-Type": "application/vnd.tidelog.batches"}
GROUP = {"Content-Type": "application/vnd.kafka.v2+json"}


async def give(site: Site, entity: Mapping[str, str] | None = None, **rates: float | None) -> None:
    asked = {"data": [{**(entity or {"user": "<default>"}), "rates": rates}]}
    answer = await site.post(f"{site.v3}/quotas:alter", asked)
    assert answer.status == 204, answer.body


def is_refused(reply: Reply) -> bool:
    if reply.status != 429:
        return False
    assert reply.json()["error_code"] == 42902
    assert int(reply.headers["retry-after"]) >= 1
    return True


async def test_records_over_a_share_are_refused_and_nothing_is_appended(site: Site) -> None:
    await give(site, producer_byte_rate=1.0)
    value = "x" * 2_000
    assert (await site.produce(value)).status == 200
    refused = await site.produce(value)
    assert is_refused(refused) and int(refused.headers["retry-after"]) > 1_000
    assert "producer_byte_rate of user ANONYMOUS is 1 per second at each broker" in refused.message
    assert is_refused(await site.ask("POST", "/topics/t/partitions/0/batches", site.batch(b"x" * 2_000), BATCHES))
    assert len(site.values()) == 1
    assert (await site.get("/topics/t/partitions/0/records?offset=0")).status == 200, "reading has a share of its own"
    await give(site, producer_byte_rate=None)
    assert (await site.produce(value)).status == 200


@pytest.mark.parametrize("entity", [{"user": "<default>"}, {"client_id": "<default>"}, {"user": "ANONYMOUS"}])
async def test_neither_client_ids_nor_connections_get_around_a_share(site: Site, entity: Mapping[str, str]) -> None:
    """F121."""
    await give(site, entity, producer_byte_rate=1.0)

    async def produce(number: int) -> int:
        body = b'{"records":[{"value":"%s"}]}' % (b"x" * 1_000)
        return (await site.ask("POST", "/topics/t", body, {**JSON_V2, "X-Client-Id": f"client-{number}"})).status

    statuses = await asyncio.gather(*(produce(number) for number in range(40)))
    assert sorted(statuses) == [200] + [429] * 39
    assert len(site.values()) == 1


async def test_a_client_id_with_a_share_of_its_own_is_not_troubled_by_others(site: Site) -> None:
    """F88: what the one over its share sends, others do not pay for; counted, not timed."""
    await give(site, {"client_id": "<default>"}, producer_byte_rate=1.0)
    await give(site, {"client_id": "good"}, producer_byte_rate=1e9)
    admitted = {"good": 0, "greedy": 0}
    body = b'{"records":[{"value":"%s"}]}' % (b"x" * 1_000)
    for number in range(30):
        for name in admitted:
            own = {} if name == "greedy" else {"X-Client-Id": name}
            reply = await site.ask("POST", "/topics/t", body, {**JSON_V2, **own})
            admitted[name] += reply.status == 200
            assert reply.status == 200 or is_refused(reply), number
    assert admitted == {"good": 30, "greedy": 1}
    assert len(site.values()) == 31


async def test_a_body_in_chunks_is_charged_as_it_comes_and_not_refused_half_way(site: Site) -> None:
    await give(site, producer_byte_rate=1.0)
    async with await site.wire() as wire:
        wire.write(head("POST", "/topics/t", {**JSON_V2, **CHUNKED}))
        wire.write_chunk(b'{"records":[{"value":"')
        await site.until(lambda: site.server.context.face.shares.buckets == 1)
        wire.write_chunk(b"x" * 100)
        wire.write_chunk(b'"}]}')
        wire.write_chunk(b"")
        assert (await wire.read()).status == 200
    assert is_refused(await site.produce("other"))
    assert len(site.values()) == 1


async def test_a_stream_ends_with_the_refusal_as_its_last_receipt(site: Site) -> None:
    await give(site, producer_byte_rate=1.0)
    record = b'{"value":{"type":"STRING","data":"%s"}}' % (b"x" * 1_000)
    async with await site.wire() as wire:
        wire.write(head("POST", f"{site.v3}/topics/t/records", {**JSON_DOCUMENT, **CHUNKED}))
        wire.write_chunk(record)
        await site.until(lambda: len(site.values()) == 1)
        wire.write_chunk(record)
        receipts = (await wire.read()).body
    assert b'"error_code":42902' in receipts.splitlines()[-1]
    assert len(site.values()) == 1


async def test_reads_over_a_share_are_refused_and_nothing_is_lost(site: Site) -> None:
    await site.produce("x" * 2_000)
    await give(site, consumer_byte_rate=1.0)
    read = "/topics/t/partitions/0/records?offset=0"
    assert (await site.get(read)).status == 200
    for target in (read, "/topics/t/partitions/0/batches?offset=0", "/topics/t/partitions/0/batches?offset=0&to=1"):
        assert is_refused(await site.get(target)), target
    assert (await site.produce(1)).status == 200


async def test_a_rest_consumer_that_is_refused_reads_the_same_records_later(site: Site) -> None:
    made = await site.post("/consumers/g", {"name": "i", "format": "json", "auto.offset.reset": "earliest"}, GROUP)
    assert made.status == 200
    instance = "/consumers/g/instances/i"
    await site.post(f"{instance}/assignments", {"partitions": [{"topic": "t", "partition": 0}]}, GROUP)
    await site.produce("x" * 2_000)
    await give(site, consumer_byte_rate=1.0)
    assert (await site.get("/topics/t/partitions/0/records?offset=0")).status == 200
    json = {"Accept": "application/vnd.kafka.json.v2+json"}
    assert is_refused(await site.get(f"{instance}/records?timeout=1000", json))
    await give(site, consumer_byte_rate=None)
    found = await site.get(f"{instance}/records?timeout=5000", json)
    assert [record["offset"] for record in found.json()] == [0]


async def test_requests_over_a_share_are_refused_but_not_those_that_keep_members_and_probes_alive(site: Site) -> None:
    await give(site, request_rate=SLOW)
    statuses = [(await site.get("/topics")).status for _ in range(4)]
    assert statuses == [200, 200, 429, 429], "one at once, and what passed last"
    for target in ("/healthz", "/readyz", "/metrics"):
        assert (await site.get(target)).status == 200
    heartbeat = {"member_id": "m", "member_epoch": 0, "topics": ["t"]}
    assert (await site.post("/groups/g/heartbeat", heartbeat)).status == 200
    assert (await site.post("/groups/h/offsets", {"offsets": []})).status == 200
    assert is_refused(await site.get("/topics"))
    metrics = await site.metrics()
    assert 'tidelog_http_refused_total{reason="quota"} 3.0' in metrics
    assert 'tidelog_quota_refused_total{key="request_rate"} 3.0' in metrics


async def test_topics_and_groups_are_not_made_or_deleted_over_a_share(site: Site) -> None:
    await give(site, controller_mutation_rate=SLOW)
    assert (await site.post(f"{site.v3}/topics", {"topic_name": "a", "partitions_count": 5})).status == 201
    assert is_refused(await site.post(f"{site.v3}/topics", {"topic_name": "b"}))
    only = {"topic_name": "b", "validate_only": True}
    assert (await site.post(f"{site.v3}/topics", only)).status == 200
    assert is_refused(await site.ask("PATCH", f"{site.v3}/topics/a", b'{"partitions_count":9}', JSON_DOCUMENT))
    assert is_refused(await site.ask("DELETE", f"{site.v3}/topics/a"))
    assert is_refused(await site.ask("DELETE", f"{site.v3}/consumer-groups/g"))
    assert is_refused(await site.post("/consumers/g", {}, GROUP))
    assert is_refused(await site.post("/groups/g/heartbeat", {"member_id": "m", "member_epoch": 0, "topics": ["t"]}))
    image = site.broker.image
    assert sorted(name for name in image.topics if name != "__consumer_offsets") == ["a", "t"]
    assert len(image.topics["a"].partitions) == 5
    assert (await site.produce(1)).status == 200


async def test_a_request_that_waited_says_for_how_long(site: Site) -> None:
    await give(site, producer_byte_rate=1e6)
    site.server.context.face.shares.charge("producer_byte_rate", Client(ANONYMOUS), 1.2e6)
    reply = await site.produce("x")
    assert reply.status == 200 and 0 <= int(reply.headers.get("tidelog-throttle-time-ms", 0)) <= 1_000


async def test_an_address_that_connects_too_often_is_refused() -> None:
    async with simulated() as site:
        await give(site, {"address": "127.0.0.1"}, connection_creation_rate=SLOW)
        statuses = [(await site.get("/healthz")).status for _ in range(4)]
        assert statuses == [200, 200, 429, 429]


async def test_quotas_are_listed_as_they_were_given_and_outlive_a_restart(site: Site) -> None:
    await give(site, {"user": "alice", "client_id": "<default>"}, producer_byte_rate=5.0, request_rate=0.5)
    listed = (await site.get(f"{site.v3}/quotas")).json()
    assert listed["kind"] == "TidelogQuotaList"
    assert [(one["user"], one["client_id"], one["address"], one["rates"]) for one in listed["data"]] == [
        ("alice", "<default>", None, {"producer_byte_rate": 5.0, "request_rate": 0.5})
    ]
    await site.restart()
    assert (await site.get(f"{site.v3}/quotas")).json()["data"][0]["rates"]["request_rate"] == 0.5


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"data": []},
        {"data": [{"rates": {}}]},
        {"data": [{"user": "a", "rates": {}}]},
        {"data": [{"user": "a", "rates": {"nope": 1}}]},
        {"data": [{"user": "a", "rates": {"request_rate": 0}}]},
        {"data": [{"user": "a", "rates": {"request_rate": "1"}}]},
        {"data": [{"user": "a", "rates": {"request_rate": True}}]},
        {"data": [{"user": "a", "rates": {"connections": 1.5}}]},
        {"data": [{"user": "a", "rates": {"connections": 0}}]},
        {"data": [{"user": "a", "client_id": "b", "rates": {"connections": 1}}]},
        {"data": [{"user": "a\r\nb", "rates": {"request_rate": 1}}]},
        {"data": [{"address": "example.org", "rates": {"connection_creation_rate": 1}}]},
        {"data": [{"user": "a", "rates": {"request_rate": 1}}] * 101},
    ],
)
async def test_what_is_no_quota_is_a_400(site: Site, asked: object) -> None:
    reply = await site.post(f"{site.v3}/quotas:alter", asked)
    assert reply.status == 400 or (reply.status, reply.json()["error_code"]) == (422, 42206), reply.body
    assert site.broker.image.quotas == ()


async def test_our_own_clients_say_their_client_id(site: Site) -> None:
    await give(site, {"client_id": "loader"}, producer_byte_rate=1.0)
    url = f"http://{site.address[0]}:{site.address[1]}"
    async with Producer(url, client_id="loader", delivery_timeout_ms=1_500) as producer:
        await producer.send_and_wait("t", b"x" * 2_000)
        with pytest.raises(DeliveryExpired, match="producer_byte_rate of this client"):
            await producer.send_and_wait("t", b"x" * 2_000)
    async with Producer(url) as producer:
        await producer.send_and_wait("t", b"x" * 2_000)
    assert len(site.values()) == 2


def test_a_client_id_that_no_header_can_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="printable"):
        Producer(client_id="a\r\nX-Other: b")


async def test_a_principal_has_one_share_whatever_it_shows_and_others_have_theirs() -> None:
    """F121, of callers that have logged in."""
    site = Site(SimDisk(), SimRunner(Random(1), mean_s=0.0002), lingering_s=0.05)
    await site.start({"http.authentication": "token"})
    await site.topic()
    change = QuotaChange({"producer_byte_rate": 1.0}, user="<default>")
    await site.broker.admin.alter_quotas([change])
    admitted = dict.fromkeys(("alice", "bob"), 0)
    for number in range(5):
        for name in admitted:
            token, secret = site.broker.face.login.made_token(Principal("User", name), 0, "")
            await site.broker.admin.change_access(StoreToken(token))
            shown = {"Authorization": f"Bearer {token.token_id}.{secret}", "X-Client-Id": f"c{number}"}
            body = b'{"records":[{"value":"%s"}]}' % (b"x" * 1_000)
            admitted[name] += (await site.ask("POST", "/topics/t", body, {**JSON_V2, **shown})).status == 200
    assert admitted == {"alice": 1, "bob": 1}
    assert len(site.values()) == 2
    await site.stop()


async def test_a_principal_has_so_many_connections_and_others_have_theirs() -> None:
    """F121, of connections: the one that is one too many is told so, and closed; nobody else notices."""
    site = Site(SimDisk(), SimRunner(Random(1), mean_s=0.0002), lingering_s=0.05)
    await site.start({"http.authentication": "token"})
    shown = {}
    for name in ("alice", "bob"):
        token, secret = site.broker.face.login.made_token(Principal("User", name), 0, "")
        await site.broker.admin.change_access(StoreToken(token))
        shown[name] = f"Bearer {token.token_id}.{secret}"
    change = QuotaChange({"connections": 2.0}, user="<default>")
    await site.broker.admin.alter_quotas([change])

    async def ask(wire: Wire, name: str) -> Reply:
        return await wire.request("GET", "/topics", headers={"Authorization": shown.get(name, "Bearer x.y")})

    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(await site.wire()) for _ in range(5)]
        assert (await ask(wires[4], "nobody")).status == 401, "who is not known is nobody's connection"
        for wire in wires[:2]:
            for _ in range(2):
                assert (await ask(wire, "alice")).status == 200
        refused = await ask(wires[2], "alice")
        assert is_refused(refused) and "user alice has 2 connections open" in refused.message
        assert refused.headers["connection"] == "close"
        assert await wires[2].is_closed()
        assert (await ask(wires[3], "bob")).status == 200
        assert (await ask(wires[0], "bob")).status == 200, "it is his now"
        assert (await ask(wires[4], "alice")).status == 200
        assert (await ask(wires[3], "bob")).status == 200
        async with await site.wire() as last:
            assert is_refused(await ask(last, "bob"))
    await site.until_idle()
    for _ in range(3):
        async with await site.wire() as wire:
            assert (await ask(wire, "alice")).status == 200
        await site.until_idle()
    await site.stop()
