"""What is acknowledged is on the disks of all who had to vouch for it: brokers are killed, paused, restarted and wiped,
and each acknowledged record is there once, in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import pytest
from flights import read_flights
from flights_faults import SESSION_MS, SETTINGS, run

from tests.e2e.asking import JSON_RECORDS, Asked, ask, served, until
from tests.e2e.clusters import ISR, only, running, vouching
from tests.e2e.loading import GAP_S_MAX, Load, Probes, create, isr, metric, own_copy, partition, read, records, whole
from tidelog.admin import AdminClient, NewAssignment
from tidelog.consumer import Consumer
from tidelog.model.ids import TopicPartition
from tidelog.testing import LocalCluster
from tidelog.testing.faults import PROCESS_FAULTS, Fault, plan

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

REJOINED_S_MAX = 10.0
"""From a broker's ready line until it is in sync again."""
SESSION_S = SESSION_MS / 1000
LEADER = 1
"""Of the partition of a test's topic, when it begins: the first of its replicas."""


@pytest.fixture(scope="module")
def cluster(protocol: str) -> Iterator[LocalCluster]:
    """Each test leaves it whole."""
    with running(protocol, settings=SETTINGS) as cluster:
        yield cluster


# -- the load ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_the_flights_while_brokers_are_killed_and_paused(cluster: LocalCluster) -> None:
    planned = [Fault("killed", (1,), 0.2), Fault("paused", (2,), 1.2 * SESSION_S)]
    assert await run(cluster, "flights-short", read_flights(20_000), planned)


@pytest.mark.slow
async def test_the_flights_while_brokers_are_broken_in_any_order(cluster: LocalCluster) -> None:
    planned = [*islice(plan(1, cluster.node_ids, PROCESS_FAULTS), 9)]
    assert await run(cluster, "flights-long", read_flights(20_000), planned)


# -- single rules --------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_killed_follower_holds_nobody_up_and_comes_back(cluster: LocalCluster) -> None:
    await create(cluster, "follower")
    async with Load(cluster, "follower") as load:
        await asyncio.sleep(0.5)
        cluster.kill(3)
        await asyncio.to_thread(until, lambda: isr(Asked(cluster, LEADER), "follower") == [1, 2])
        await asyncio.to_thread(cluster.restart, 3)
        await asyncio.to_thread(until, lambda: 3 in isr(Asked(cluster, LEADER), "follower"), REJOINED_S_MAX)
    load.check(await records(cluster, "follower"))
    assert load.gap_s_max < GAP_S_MAX
    await whole(cluster, "follower")


@pytest.mark.slow
async def test_a_killed_leader_is_replaced_and_a_producer_notices_little(cluster: LocalCluster) -> None:
    await create(cluster, "killed")
    async with Load(cluster, "killed") as load:
        await asyncio.sleep(0.5)
        cluster.kill(LEADER)
        await asyncio.to_thread(until, lambda: partition(Asked(cluster, 2), "killed")["leader"] not in (-1, LEADER))
        await asyncio.to_thread(cluster.restart, LEADER)
    load.check(await records(cluster, "killed"))
    assert load.gap_s_max < GAP_S_MAX
    await whole(cluster, "killed")


@pytest.mark.slow
async def test_a_leader_that_slept_acknowledges_nothing_of_its_own(cluster: LocalCluster, protocol: str) -> None:
    """It wakes with a request before it that nobody waits for any more, and takes itself for the leader."""
    await create(cluster, "zombie")
    await create(cluster, "zombie-direct")
    probes = Probes(cluster, LEADER, "zombie-direct")
    witness = Asked(cluster, 2)
    async with Load(cluster, "zombie") as load:
        assert len(await probes.send()) >= vouching(protocol, 3)
        cluster.pause(LEADER)
        assert await probes.send() == []
        await asyncio.to_thread(until, lambda: has_passed_on(partition(witness, "zombie-direct")))
        cluster.resume(LEADER)
        for _ in range(20):
            assert await probes.send() != [LEADER]
    for topic, check in (("zombie", load.check), ("zombie-direct", probes.check)):
        await whole(cluster, topic)
        check(await records(cluster, topic))


def has_passed_on(known: dict[str, Any]) -> bool:
    return known["leader"] not in (-1, LEADER) and LEADER not in known["isr"]


@only(ISR)
async def test_too_few_in_sync_refuse_acks_all_until_one_is_back(cluster: LocalCluster) -> None:
    await create(cluster, "min", {"min.insync.replicas": "3"})
    asked = Asked(cluster, LEADER)
    asked.append("min", 0, "before")
    cluster.kill(3)
    url = f"{asked.url}/topics/min/partitions/0"
    one = {"records": [{"value": "leader only"}]}
    await asyncio.to_thread(until, lambda: 3 not in isr(asked, "min"))
    refused = asked.produce("min", 0, "never")
    assert (refused.status, refused.code) == (503, 50302)
    assert "min.insync.replicas" in refused.body["message"] and "nothing was appended" in refused.body["message"]
    assert metric(asked, "tidelog_under_replicated_partitions") >= 1
    assert metric(asked, "tidelog_under_min_isr_partitions") == 1
    assert metric(asked, "tidelog_isr_shrinks_total") >= 1
    assert metric(asked, 'tidelog_partition_in_sync_replicas{partition="0",topic="min"}') == 2
    alone = served(lambda: ask(f"{url}?acks=1", one, media=JSON_RECORDS))
    assert (alone.status, alone.body["offsets"][0]["acked_by"]) == (200, [LEADER])
    assert alone.body["offsets"][0]["durability"] == "leader"
    unheard = {"records": [{"value": "nobody waits"}]}
    assert served(lambda: ask(f"{url}?acks=0", unheard, media=JSON_RECORDS)).status == 204
    assert asked.values("min", 0) == ["before"], "what is in fewer replicas is not committed"
    await asyncio.to_thread(cluster.restart, 3)
    await whole(cluster, "min")
    await asyncio.to_thread(until, lambda: metric(asked, "tidelog_isr_expands_total") >= 1)
    assert metric(asked, "tidelog_under_min_isr_partitions") == 0
    assert metric(asked, "tidelog_replica_fetches_total") > 0
    await asyncio.to_thread(
        until, lambda: metric(asked, 'tidelog_replica_lag_records{partition="0",replica="3",topic="min"}') == 0
    )
    after = asked.append("min", 0, "after")
    assert sorted(after.body["offsets"][0]["acked_by"]) == [1, 2, 3]
    assert after.body["offsets"][0]["durability"] == "fsynced"
    assert await read(cluster, "min") == ["before", "leader only", "nobody waits", "after"]


async def test_a_key_is_honoured_by_any_broker_after_the_leader_is_gone(cluster: LocalCluster) -> None:
    await create(cluster, "keyed")

    def post(node_id: int, key: str, value: str) -> int:
        url, keyed = f"{cluster.broker(node_id).url}/topics/keyed/partitions/0", {"Idempotency-Key": key}
        record = {"records": [{"value": value}]}
        answer = served(lambda: ask(url, record, media=JSON_RECORDS, headers=keyed))
        assert answer.status == 200, answer
        return int(answer.body["offsets"][0]["offset"])

    for number in range(5):
        assert post(1 + number % 3, f"key-{number}", f"{number}") == number
    cluster.kill(LEADER)
    for number in range(5):
        assert post(2 + number % 2, f"key-{number}", f"{number}") == number
    assert post(3, "another", "5") == 5
    await asyncio.to_thread(cluster.restart, LEADER)
    await whole(cluster, "keyed")
    assert post(LEADER, "key-3", "3") == 3
    assert await read(cluster, "keyed") == ["0", "1", "2", "3", "4", "5"]


@pytest.mark.slow
async def test_a_reader_goes_on_where_the_killed_leader_stopped(cluster: LocalCluster) -> None:
    await create(cluster, "reading")
    found: list[tuple[int, str]] = []

    async def follow(enough: Callable[[], bool]) -> None:
        async with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("reading", 0)])
            while not enough():
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    found.extend((record.offset, (record.value or b"").decode().strip('"')) for record in records)

    load = Load(cluster, "reading")
    is_over = asyncio.Event()
    reading = asyncio.create_task(follow(lambda: is_over.is_set() and len(found) >= len(load.acknowledged)))
    async with load:
        await asyncio.sleep(0.5)
        cluster.kill(LEADER)
        await asyncio.sleep(1.0)
        await asyncio.to_thread(cluster.restart, LEADER)
    is_over.set()
    async with asyncio.timeout(20):
        await reading
    assert found == load.acknowledged
    await whole(cluster, "reading")


@pytest.mark.slow
async def test_a_wiped_broker_is_filled_again_and_can_lead(cluster: LocalCluster) -> None:
    await create(cluster, "wiped")
    asked = Asked(cluster, 1)
    values = [f"{number}" for number in range(500)]
    asked.append("wiped", 0, *values)
    voter = asked.voters[3]
    cluster.wipe(3)
    await asyncio.to_thread(cluster.restart, 3)
    await whole(cluster, "wiped")
    await asyncio.to_thread(until, lambda: asked.voters.get(3, voter) != voter)
    cluster.kill(LEADER)
    survivor = Asked(cluster, 2)
    await asyncio.to_thread(until, lambda: survivor.produce("wiped", 0, "more").status != 503)
    await asyncio.to_thread(cluster.restart, LEADER)
    await whole(cluster, "wiped")
    await asyncio.to_thread(until, lambda: own_copy(cluster, 3, "wiped") == [*values, "more"])


async def test_each_broker_answers_from_its_own_copy(cluster: LocalCluster) -> None:
    async with AdminClient(cluster.bootstrap) as admin:
        await admin.create_topic("copies", replicas_assignments={0: [1, 2]})
    Asked(cluster, 3).append("copies", 0, "a", "b")
    await asyncio.to_thread(
        until, lambda: all(own_copy(cluster, node_id, "copies") == ["a", "b"] for node_id in (1, 2))
    )
    records = f"{cluster.broker(3).url}/topics/copies/partitions/0/records?offset=0"
    none = ask(f"{records}&replica=local", media=JSON_RECORDS)
    assert (none.status, none.code) == (404, 40404)
    assert len(ask(f"{records}&replica=any", media=JSON_RECORDS).body) == 2, "forwarded, as it holds no copy"
    follower = f"{cluster.broker(2).url}/topics/copies/partitions/0/records?replica=local"
    await_third = partial(ask, f"{follower}&offset=2&timeout=10000", media=JSON_RECORDS)
    waiting = asyncio.create_task(asyncio.to_thread(served, await_third))
    await asyncio.sleep(0.1)
    Asked(cluster, 1).append("copies", 0, "c")
    assert [record["value"] for record in (await waiting).body] == ["c"], "a reader of a copy is woken"
    beyond = ask(f"{follower}&offset=99", media=JSON_RECORDS)
    assert beyond.status == 416


@pytest.mark.slow
async def test_a_move_outlives_the_controller_that_began_it(cluster: LocalCluster) -> None:
    async with AdminClient(cluster.bootstrap) as admin:
        await admin.create_topic("moved", replicas_assignments={0: [1, 2]})
        Asked(cluster, 1).append("moved", 0, "a", "b")
        controller = Asked(cluster, 1).controller
        await admin.alter_reassignments([NewAssignment("moved", 0, (3, 2))])
        await asyncio.to_thread(cluster.kill, controller)
        await asyncio.to_thread(cluster.restart, controller)
        async with asyncio.timeout(30):
            while await admin.list_reassignments():
                await asyncio.sleep(0.1)
        (partition,) = (await admin.describe_topic("moved")).partitions
        assert partition.replicas == (3, 2)
    assert await read(cluster, "moved") == ["a", "b"]
    gone = ask(f"{cluster.broker(1).url}/topics/moved/partitions/0/records?offset=0&replica=local", media=JSON_RECORDS)
    assert (gone.status, gone.code) == (404, 40404)
