"""Reads above the high watermark: `order`, `above`, and what an answer says.

One broker commits at once, so no hole can open: what its leader has released is told to it by the test.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from tests.integration.http.conftest import AS_JSON, Site, simulated
from tests.integration.http.test_batches import RAW
from tidelog.broker.partitions.partition_handle import ReleasedBatches
from tidelog.broker.paxos.partition import PaxosPartition
from tidelog.broker.routing.led_here import LedHere
from tidelog.model.batch_header import iter_batches

RECORDS = "/topics/k/partitions/0/records"
BATCHES = "/topics/k/partitions/0/batches"


class Leader:
    """The leader of partition `k-0`."""

    def __init__(self, site: Site) -> None:
        found = site.broker.partition("k", 0)
        assert isinstance(found, LedHere) and isinstance(found.led, PaxosPartition)
        self.site = site
        self.led = found.led
        self.values: list[ReleasedBatches] = []
        self.led.released = self._released  # type: ignore[method-assign]  # what the test says

    def _released(self) -> Sequence[ReleasedBatches]:
        return self.values

    def release(self, base_offset: int, *values: bytes) -> None:
        data = self.site.batch(*values, base_offset=base_offset)
        self.values.append(ReleasedBatches(base_offset, base_offset + len(values), lambda: data))
        self.led.watchers.wake_all()


@pytest.fixture
async def leader() -> AsyncIterator[Leader]:
    """The leader of a topic in order by key, with records 0 to 2."""
    async with simulated() as site:
        for order in ("key", "none"):
            await site.topic(order[0], commit_protocol="paxos", commit_order=order)
        reply = await site.ask("POST", BATCHES, site.batch(b"0", b"1", b"2"), RAW)
        assert reply.status == 200
        yield Leader(site)


def offsets(data: bytes) -> list[int]:
    return [batch.header.base_offset for batch in iter_batches(data)]


async def test_released_batches_come_behind_what_is_committed(leader: Leader) -> None:
    leader.release(5, b"5", b"6")
    leader.release(9, b"9")
    reply = await leader.site.get(f"{BATCHES}?offset=1&order=key")
    assert offsets(reply.body) == [0, 5, 9]
    assert (reply.headers["tidelog-high-watermark"], reply.headers["tidelog-above"]) == ("3", "5-6,9-9")
    reply = await leader.site.get(f"{BATCHES}?offset=3&order=none&above=5-6")
    assert (offsets(reply.body), reply.headers["tidelog-above"]) == ([9], "9-9")
    for query in ("offset=3", "offset=3&order=total", "offset=3&order=key&above=5-9"):
        reply = await leader.site.get(f"{BATCHES}?{query}")
        assert (reply.body, "tidelog-above" in reply.headers) == (b"", False)
    reply = await leader.site.get(f"{BATCHES}?offset=3&order=key&replica=any")
    assert reply.body == b"", "a copy tells what is committed"


async def test_released_records_come_as_json(leader: Leader) -> None:
    leader.release(5, b"5", b"6")
    leader.release(9, b"9")

    async def read(query: str) -> tuple[list[int], str | None]:
        reply = await leader.site.get(f"{RECORDS}?{query}", AS_JSON)
        assert all(record["offset"] == record["value"] for record in reply.json())
        return [record["offset"] for record in reply.json()], reply.headers.get("tidelog-above")

    assert await read("offset=0&order=key") == ([0, 1, 2, 5, 6, 9], "5-6,9-9")
    assert await read("offset=3&order=key&above=5-5") == ([6, 9], "6-6,9-9")
    assert await read("offset=3&order=key&max_bytes=1") == ([5], "5-5")
    assert await read("offset=0&order=key&max_bytes=40") == ([0], None)
    assert await read("offset=3") == ([], None)


async def test_a_released_record_that_is_not_json_is_named(leader: Leader) -> None:
    leader.release(5, b"5", b"{")
    reply = await leader.site.get(f"{RECORDS}?offset=3&order=key", AS_JSON)
    assert (reply.status, reply.code) == (406, 40601)
    assert "offset 6 " in reply.message


@pytest.mark.parametrize("target", [f"{BATCHES}?wait_ms=20000", f"{RECORDS}?timeout=20000"])
async def test_a_wait_ends_when_something_is_released_that_the_reader_lacks(leader: Leader, target: str) -> None:
    leader.release(5, b"5")
    reading = asyncio.create_task(leader.site.get(f"{target}&offset=3&order=key&above=5-5"))
    await leader.site.until(lambda: leader.site.broker.purgatory.waiting == 1)
    leader.led.watchers.wake_all()
    await asyncio.sleep(0.05)
    assert not reading.done()
    leader.release(7, b"7")
    assert (await reading).headers["tidelog-above"] == "7-7"


async def test_a_wait_ends_with_what_is_committed_and_at_its_deadline(leader: Leader) -> None:
    reading = asyncio.create_task(leader.site.get(f"{BATCHES}?wait_ms=20000&offset=3&order=key"))
    await leader.site.until(lambda: leader.site.broker.purgatory.waiting == 1)
    await leader.site.ask("POST", BATCHES, leader.site.batch(b"3"), RAW)
    assert offsets((await reading).body) == [3]
    assert (await leader.site.get(f"{BATCHES}?wait_ms=20&offset=4&order=key")).body == b""


async def test_an_answer_holds_so_many_bytes(leader: Leader) -> None:
    leader.release(5, b"x" * 2_000)
    leader.release(7, b"7")
    reply = await leader.site.get(f"{BATCHES}?offset=3&order=key&max_bytes=1")
    assert offsets(reply.body) == [5]
    reply = await leader.site.get(f"{BATCHES}?offset=0&order=key&max_bytes=1000")
    assert offsets(reply.body) == [0], "7 does not come before 5"


BAD = (
    ("order=keys", "order must be total, key or none, not 'keys'"),
    ("order=", "order must be total"),
    ("order=KEY", "order must be total"),
    ("above=5-6", "above names what was read out of order"),
    ("order=total&above=5-6", "above names what was read out of order"),
    ("order=key&above=5", "'5' is no range"),
    ("order=key&above=9-9,5-6", "sort them"),
    ("order=key&above=" + ",".join(f"{number}-{number}" for number in range(1001)), "1001 ranges"),
    ("order=key&order=none", "given twice"),
)


async def test_bad_parameters_are_named(leader: Leader) -> None:
    for target in (BATCHES, RECORDS):
        for query, why in BAD:
            reply = await leader.site.get(f"{target}?offset=3&{query}")
            assert (reply.status, reply.code) == (400, 40002), query
            assert why in reply.message


async def test_a_topic_says_why_it_is_not_read_in_this_order(leader: Leader) -> None:
    for topic, order, why in (
        ("total", "key", "topic t has commit.order=total: its records are read in order"),
        ("total", "none", "topic t has commit.order=total: its records are read in order"),
        ("none", "key", "topic n has commit.order=none"),
    ):
        reply = await leader.site.get(f"/topics/{topic[0]}/partitions/0/batches?offset=0&order={order}")
        assert (reply.status, reply.code) == (400, 40002)
        assert why in reply.message
    assert (await leader.site.get("/topics/n/partitions/0/batches?offset=0&order=none")).status == 200
    assert (await leader.site.get("/topics/t/partitions/0/batches?offset=0&order=total")).status == 200


async def test_a_range_is_read_in_order(leader: Leader) -> None:
    reply = await leader.site.get(f"{BATCHES}?offset=0&to=9&order=key")
    assert (reply.status, reply.message) == (400, "order makes no sense with to: a range is sent whole, and at once")
    assert (await leader.site.get(f"{BATCHES}?offset=0&to=9&order=total")).status == 200


async def test_metadata_tell_the_order(leader: Leader) -> None:
    topics = (await leader.site.get("/metadata")).json()["topics"]
    assert {topic["name"]: topic["commit_order"] for topic in topics} == {"k": "key", "n": "none", "t": "total"}
