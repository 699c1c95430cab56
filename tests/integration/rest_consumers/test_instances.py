"""A REST consumer from its creation to its deletion, over a real listener."""

from __future__ import annotations

import asyncio
import base64

import pytest

from tests.integration.http.conftest import BINARY_V2, JSON_V2, Site
from tests.integration.http.wire import Reply
from tests.integration.rest_consumers.conftest import AS_JSON, Client, named

V2 = "application/vnd.kafka.v2+json"


async def create_at(site: Site, host: str, body: str = "") -> Reply:
    head = f"POST /consumers/g HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
    async with await site.wire() as wire:
        wire.write((head + body).encode())
        return await wire.read("POST")


async def test_creation(site: Site, client: Client) -> None:
    reply = await create_at(site, "a-host:80", '{"name": "i"}')
    assert reply.status == 200
    assert reply.headers["content-type"] == V2
    assert reply.json() == {"instance_id": "i", "base_uri": "http://a-host:80/consumers/g/instances/i"}
    host, port = site.address
    for strange in ("", "x@y", "a,b"):
        made_up = (await create_at(site, strange)).json()
        assert made_up["instance_id"].startswith("rest-consumer-")
        assert made_up["base_uri"] == f"http://{host}:{port}{client.group}/instances/{made_up['instance_id']}"
    by_id = await client.send("POST", client.group, {"id": "by-id", "fetch.min.bytes": "-1"})
    assert by_id.json()["instance_id"] == "by-id"


async def test_records_have_all_that_they_were_written_with(site: Site, client: Client) -> None:
    other = Client(site.ask, "binary", "h")
    await client.create()
    await other.create(format="binary")
    header = {"key": "year", "value": base64.b64encode(b"2013").decode()}
    record = {"key": {"k": 1.0}, "value": None, "timestamp": 1_700_000_000_000, "headers": [header], "partition": 0}
    await site.post("/topics/t", {"records": [record]}, JSON_V2)
    await client.subscribe()
    await other.subscribe()
    shown = {"topic": "t", "partition": 0, "offset": 0, "timestamp": 1_700_000_000_000, "headers": [header]}
    reply = await client.send("GET", "records", **AS_JSON)
    assert reply.headers["content-type"] == AS_JSON["Accept"]
    assert reply.json() == [{**shown, "key": {"k": 1.0}, "value": None}]
    reply = await other.send("GET", "records")
    assert reply.headers["content-type"] == BINARY_V2["Content-Type"]
    assert reply.json() == [{**shown, "key": base64.b64encode(b'{"k": 1.0}').decode(), "value": None}]


@pytest.mark.slow
async def test_subscriptions_come_and_go(site: Site, client: Client) -> None:
    for topic in ("t1", "t2", "u"):
        await site.topic(topic, 2)
    await client.create()
    await client.done("POST", "subscription", {"topic_pattern": "t[0-9]"})
    assert await client.done("GET", "subscription") == {"topics": ["t1", "t2"]}
    assert len(await client.assigned()) == 4
    await client.subscribe("u", "t2")
    assert await client.done("GET", "subscription") == {"topics": ["t2", "u"]}
    assert len(await client.assigned()) == 4
    await client.done("DELETE", "subscription")
    assert await client.done("GET", "subscription") == {"topics": []}
    assert await client.assigned() == []
    assert (await client.send("GET", "records")).code == 40903
    await client.assign(0)
    assert await client.assigned() == [0]
    assert (await client.send("POST", "subscription", {"topics": ["t"]})).code == 40903
    await client.done("DELETE", "subscription")
    await client.subscribe()


async def test_positions(site: Site, client: Client) -> None:
    await site.topic("t3", 1)
    moments = ["2020-01-01T00:00:00Z", "2021-01-01T00:00:00Z"]
    times = [1_577_836_800_000, 1_609_459_200_000]
    for value, time in enumerate(times):
        await site.post("/topics/t", {"records": [{"value": value, "timestamp": time}]}, JSON_V2)
    await client.create(auto_offset_reset="none")
    await client.assign(0)
    assert (await client.send("GET", "records")).code == 40903
    await client.done("POST", "positions/beginning", {"partitions": named(0)})
    assert await client.values() == [0, 1]
    await client.done("POST", "positions", {"offsets": named(0, offset=1)})
    assert await client.values() == [1]
    await client.done("POST", "positions", {"timestamps": named(0, timestamp=moments[1])})
    assert await client.values() == [1]
    await client.done("POST", "positions", {"timestamps": named(0, timestamp="2022-01-01T00:00:00+01:00")})
    assert await client.values("?timeout=0") == []
    await client.done("POST", "positions/beginning", {"partitions": []})
    await client.done("POST", "positions/end", {"partitions": []})
    await client.commit()
    assert await client.committed() == {0: 2}
    await client.done("POST", "positions", {"offsets": named(0, offset=99)})
    assert (await client.send("GET", "records")).code == 40903


async def test_it_begins_at_the_end_of_the_moment_it_gets_its_partitions(site: Site, client: Client) -> None:
    await site.produce("before")
    await client.create(auto_offset_reset="latest")
    await client.subscribe()
    await site.produce("after")
    assert await client.values() == ["after"]


async def test_a_position_that_is_not_in_the_log_is_found_anew(site: Site, client: Client) -> None:
    await site.produce(*range(5))
    await client.create()
    await client.assign(0)
    await client.done("POST", "positions", {"offsets": named(0, offset=1_000)})
    assert await client.values() == [0, 1, 2, 3, 4]
    await client.done("POST", "positions", {"offsets": named(0, offset=0)})
    await site.post(f"{site.v3}/topics/t/partitions/0/records:delete", {"before_offset": 3})
    assert await client.values() == [3, 4]


@pytest.mark.slow
async def test_a_committed_offset_that_is_not_in_the_log_any_more_is_not_gone_to(site: Site, client: Client) -> None:
    await site.produce(*range(5))
    await client.create()
    await client.assign(0)
    await client.commit(*named(0, offset=0))
    await client.delete()
    await site.post(f"{site.v3}/topics/t/partitions/0/records:delete", {"before_offset": 3})
    await client.create()
    await client.assign(0)
    assert await client.values() == [3, 4]


@pytest.mark.slow
async def test_a_topic_that_is_created_anew_is_read_from_its_beginning(site: Site, client: Client) -> None:
    await site.produce("a", "b")
    await client.create()
    await client.assign(0)
    assert await client.values() == ["a", "b"]
    await site.ask("DELETE", f"{site.v3}/topics/t")
    await site.topic()
    await site.produce("c", "d", "e")
    assert await client.values() == ["c", "d", "e"]


async def test_what_is_not_json_is_not_stepped_over(site: Site, client: Client) -> None:
    await client.create()
    await client.subscribe()
    for body in ('{"records": [{"value": "MQ=="}, {"value": "e30="}]}', '{"records": [{"value": "eyc="}]}'):
        await site.ask("POST", "/topics/t", body.encode(), BINARY_V2)
    await site.produce("good")
    assert await client.values() == [1, {}]
    for _ in range(2):
        reply = await client.send("GET", "records")
        assert (reply.status, reply.code) == (406, 40601)
        assert "offset 2" in reply.message
    await client.done("POST", "positions", {"offsets": named(0, offset=3)})
    assert await client.values() == ["good"]


@pytest.mark.slow
async def test_partitions_take_turns(site: Site, client: Client) -> None:
    """One that has more than a page does not starve the others."""
    await site.topic("many", 3)
    await client.create()
    for partition in range(3):
        records = [{"value": f"{partition}-{number}"} for number in range(20)]
        await site.post(f"/topics/many/partitions/{partition}", {"records": records}, JSON_V2)
    await client.subscribe("many")
    first = [(await client.read("?max_bytes=1"))[0]["partition"] for _ in range(6)]
    assert sorted(first) == [0, 0, 1, 1, 2, 2]
    rest = await client.read()
    assert len(rest) == 54
    for partition in range(3):
        offsets = [record["offset"] for record in rest if record["partition"] == partition]
        assert offsets == [*range(2, 20)]


@pytest.mark.slow
async def test_fetch_min_bytes_are_waited_for(site: Site, client: Client) -> None:
    await client.create(fetch_min_bytes=1_000, consumer_request_timeout_ms=30_000)
    await client.subscribe()
    await site.produce("a")
    assert await client.values("?timeout=50") == ["a"]
    waiting = asyncio.ensure_future(client.values())
    for _ in range(30):
        await site.produce("b")
    found = await waiting
    assert len(found) > 20
    assert {*found} == {"b"}


@pytest.mark.slow
async def test_of_two_reads_the_newer_one_counts(site: Site, client: Client) -> None:
    await client.create()
    await client.subscribe()
    older = asyncio.ensure_future(client.values("?timeout=30000"))
    await site.until(lambda: site.broker.purgatory.waiting > 0)
    newer = asyncio.ensure_future(client.values("?timeout=30000"))
    assert await older == []
    await site.produce("a")
    assert await newer == ["a"]


async def test_nothing_waits_for_a_read(site: Site, client: Client) -> None:
    await client.create()
    await client.subscribe()
    reading = asyncio.ensure_future(client.send("GET", "records?timeout=30000"))
    await site.until(lambda: site.broker.purgatory.waiting > 0)
    await client.commit(*named(0, offset=5))
    assert await client.committed() == {0: 6}
    await client.delete()
    assert (await reading).code == 40403


@pytest.mark.slow
async def test_a_client_that_goes_away_has_read_nothing(site: Site, client: Client) -> None:
    await client.create()
    await client.subscribe()
    async with await site.wire() as wire:
        wire.write(f"GET {client.path}/records?timeout=30000 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await site.until(lambda: site.broker.purgatory.waiting > 0)
    await site.until(lambda: site.broker.purgatory.waiting == 0)
    await site.produce("a")
    assert await client.values() == ["a"]


async def test_a_read_that_finds_no_memory_has_read_nothing(site: Site, client: Client) -> None:
    await client.create()
    await client.subscribe()
    await site.produce("a")
    budget = site.broker.rest_consumers._reader.budget
    budget.take(budget.bytes_max)
    reply = await client.send("GET", "records")
    assert (reply.status, reply.code) == (503, 50305)
    assert int(reply.headers["retry-after"]) > 0
    budget.give_back(budget.bytes_max)
    assert await client.values() == ["a"]
    assert site.gauge("tidelog_rest_consumer_bytes") == 0
    assert site.gauge("tidelog_rest_consumers") == 1


@pytest.mark.slow
async def test_a_shutdown_ends_reads_that_wait(site: Site, client: Client) -> None:
    await client.create()
    await client.subscribe()
    reading = asyncio.ensure_future(client.values("?timeout=30000"))
    await site.until(lambda: site.broker.purgatory.waiting > 0)
    await site.stop()
    assert await reading == []
    await site.start()
    assert await client.assigned() == [0]


@pytest.mark.parametrize("site", [{"consumer.instances.max": 2}], indirect=True)
async def test_there_are_as_many_as_there_may_be(site: Site, client: Client) -> None:
    await client.create()
    other = await Client(site.ask, "j").create()
    reply = await client.send("POST", client.group, {"name": "k"})
    assert (reply.status, reply.code) == (503, 50305)
    assert int(reply.headers["retry-after"]) > 0
    await other.delete()
    await Client(site.ask, "k").create()


async def test_members_of_a_group_share_its_partitions(site: Site, client: Client) -> None:
    await site.topic("four", 4)
    other = Client(site.ask, "j")
    await client.create(auto_commit_enable="true")
    await other.create()
    await client.subscribe("four")
    assert await client.assigned() == [0, 1, 2, 3]
    await other.subscribe("four")

    async def shared() -> bool:
        return [len(await one.assigned()) for one in (client, other)] == [2, 2]

    async with asyncio.timeout(10):
        while not await shared():
            await asyncio.sleep(0.001)
    assert sorted([*await client.assigned(), *await other.assigned()]) == [0, 1, 2, 3]
    reply = await client.send(
        "POST", "offsets", {"offsets": [{"topic": "four", "partition": (await other.assigned())[0], "offset": 0}]}
    )
    assert (reply.status, reply.code) == (409, 40915)
    await client.delete()
    async with asyncio.timeout(10):
        while len(await other.assigned()) < 4:
            await asyncio.sleep(0.001)


@pytest.mark.slow
async def test_a_manual_reader_cannot_commit_over_members(site: Site, client: Client) -> None:
    await client.create()
    await client.assign(0)
    await site.produce("a")
    assert await client.values() == ["a"]
    await client.commit()
    assert await client.committed() == {0: 1}
    other = await Client(site.ask, "j").create()
    await other.subscribe()
    assert (await client.send("POST", "offsets")).code in (None, 40913)
    reply = await client.send("POST", "offsets", {"offsets": named(0, offset=0)})
    assert (reply.status, reply.code) == (409, 40913)
    assert await client.committed() == {0: 1}
