"""Record batches for many partitions in one request: each has its own outcome, and a bad one troubles no other."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest

from tests.integration.http.conftest import Site, simulated
from tests.integration.http.wire import Reply
from tidelog.model.partition_batches import batch_table
from tidelog.sim.kit.environment import SimRunner

TARGET = "/batches"
TYPE = {"Content-Type": "application/vnd.tidelog.partition-batches"}
T = TypeVar("T")
Row = tuple[str, int, bytes]


async def post(site: Site, *rows: Row, query: str = "") -> Reply:
    return await site.ask("POST", TARGET + query, body_of(*rows), TYPE)


def body_of(*rows: Row) -> bytes:
    table = batch_table((topic, partition, len(data)) for topic, partition, data in rows)
    return table + b"".join(data for _, _, data in rows)


@pytest.fixture
async def topics(site: Site) -> None:
    await site.topic("u", 3)


@pytest.mark.usefixtures("topics")
async def test_each_partition_gets_its_batches_and_its_receipt(site: Site) -> None:
    await site.produce(0)
    reply = await post(site, ("u", 2, site.batch(b"a") + site.batch(b"b", b"c")), ("t", 0, site.batch(b"d")))
    assert reply.status == 200
    told = {"leader_epoch": 0, "acked_by": [1], "durability": "fsynced", "error_code": None, "message": None}
    places = [{"base_offset": 0, "last_offset": 0}, {"base_offset": 1, "last_offset": 2}]
    assert reply.json() == {
        "partitions": [
            {"topic": "u", "partition": 2, "batches": places, **told},
            {"topic": "t", "partition": 0, "batches": [{"base_offset": 1, "last_offset": 1}], **told},
        ]
    }
    assert (site.values("u", 2), site.values("t")) == ([b"a", b"b", b"c"], [b"0", b"d"])


@pytest.mark.usefixtures("topics")
async def test_what_is_wrong_with_one_partition_troubles_no_other(site: Site) -> None:
    await site.topic("small", max_message_bytes="100")
    good, rotten = site.batch(b"good"), bytearray(site.batch(b"rotten"))
    rotten[-1] ^= 1
    numbered = site.batch(b"n", producer_id=7, producer_epoch=0, base_sequence=5)
    gap = site.batch(b"gap", producer_id=7, producer_epoch=0, base_sequence=9)
    await post(site, ("u", 2, numbered))
    reply = await post(
        site,
        ("u", 0, good),
        ("u", 1, good + bytes(rotten)),
        ("none", 0, good),
        ("u", 3, good),
        ("u", 4_294_967_295, good),
        ("a/b", 0, good),
        ("small", 0, site.batch(b"x" * 100)),
        ("u", 2, gap),
        ("__cluster", 0, good),
        ("u", 10, b""),
        ("t", 0, good[:-1]),
    )
    assert reply.status == 200
    found = {(each["topic"], each["partition"]): each["error_code"] for each in reply.json()["partitions"]}
    assert found == {
        ("u", 0): None,
        ("u", 1): 40003,
        ("none", 0): 40401,
        ("u", 3): 40402,
        ("u", 4_294_967_295): 40402,
        ("a/b", 0): 40002,
        ("small", 0): 41301,
        ("u", 2): 40904,
        ("__cluster", 0): 40401,
        ("u", 10): 40402,
        ("t", 0): 40003,
    }
    assert "batch 1" in reply.json()["partitions"][1]["message"]
    kept = [site.values("u", number) for number in range(3)]
    assert (kept, site.values("t")) == ([[b"good"], [], [b"n"]], [])


@pytest.mark.usefixtures("topics")
async def test_a_repeat_is_known_again_partition_by_partition(site: Site) -> None:
    def numbered(*values: bytes) -> bytes:
        return site.batch(*values, producer_id=7, producer_epoch=0, base_sequence=0)

    first = await post(site, ("u", 0, numbered(b"a")))
    both = await post(site, ("u", 0, numbered(b"a")), ("u", 1, numbered(b"b")))
    assert both.json()["partitions"][0] == first.json()["partitions"][0]
    assert (site.values("u", 0), site.values("u", 1)) == ([b"a"], [b"b"])


@pytest.mark.usefixtures("topics")
async def test_acks_0_is_answered_without_a_body_unless_something_failed(site: Site) -> None:
    batch = site.batch(b"a")
    reply = await post(site, ("u", 0, batch), ("u", 1, batch), query="?acks=0")
    assert (reply.status, reply.body) == (204, b"")
    reply = await post(site, ("u", 0, batch), ("none", 0, batch), query="?acks=0")
    assert [(each["error_code"], each["durability"]) for each in reply.json()["partitions"]] == [
        (None, "none"),
        (40401, None),
    ]
    reply = await post(site, ("u", 2, batch), query="?acks=1")
    assert reply.json()["partitions"][0]["durability"] == "leader"


async def test_a_body_that_does_not_add_up_appends_nothing(site: Site) -> None:
    body = body_of(("t", 0, site.batch(b"a")))
    for bad, code in [
        (b"", 40002),
        (body[:3], 40002),
        (body[:-1], 40002),
        (body + b"x", 40002),
        (body_of(), 42206),
        (body_of(("t", 0, site.batch(b"a")), ("t", 0, site.batch(b"b"))), 42206),
    ]:
        reply = await site.ask("POST", TARGET, bad, TYPE)
        assert reply.code == code, (bad, reply.body)
    reply = await site.ask("POST", TARGET, body, {"Content-Type": "application/json"})
    assert (reply.code, "partition-batches" in reply.message) == (41501, True)
    reply = await site.ask("POST", TARGET, body, {**TYPE, "Idempotency-Key": "k"})
    assert reply.code == 40002
    assert site.values() == []


async def test_so_many_partitions_and_no_more() -> None:
    async with simulated(batches_partitions_max=2) as site:
        await site.topic("u", 3)
        rows = [("u", number, site.batch(b"a")) for number in range(3)]
        reply = await post(site, *rows)
        assert (reply.status, "http.batches.partitions.max" in reply.message) == (422, True)
        assert (await post(site, *rows[:2])).status == 200
        assert [site.values("u", number) for number in range(3)] == [[b"a"], [b"a"], []]


@pytest.mark.usefixtures("topics")
async def test_if_all_fail_alike_the_status_says_so(site: Site) -> None:
    rows = [("u", number, site.batch(b"a")) for number in range(2)]
    reply = await post(site, *rows, query="?timeout_ms=0")
    assert reply.status == 503, reply.body
    reply = await post(site, ("none", 0, site.batch(b"a")), ("none", 1, site.batch(b"a")))
    assert reply.status == 200


class CountingRunner(SimRunner):
    """Counts rounds of fsyncs."""

    rounds = 0

    async def run_all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        self.rounds += 1
        return await super().run_all(calls)


async def test_many_partitions_share_their_flushes() -> None:
    """Flushes cover what was appended meanwhile: rounds of fsyncs do not follow one another."""
    runner = CountingRunner(random.Random(0), mean_s=0.0002)
    async with simulated(runner=runner) as site:
        await site.topic("many", 100)
        before = runner.rounds
        reply = await post(site, *[("many", number, site.batch(b"a")) for number in range(100)])
        assert {each["durability"] for each in reply.json()["partitions"]} == {"fsynced"}
        assert runner.rounds - before <= 10
