"""Links of a real cluster are cut, one way or both: nobody acknowledges what others would have to vouch for, the side
that can goes on, and afterwards every acknowledged record is there once.

The brokers are in a network of their own (`PrivateNetwork`). Where there can be none the tests are skipped, and say so.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator

import pytest

from tests.e2e.asking import Asked, controller_of, until
from tests.e2e.clusters import ISR, running, vouching
from tests.e2e.loading import Load, Probes, create, isr, metric, own_copy, partition, read, records, whole
from tidelog.testing import LocalCluster, PrivateNetwork, private_network

REASON = private_network.unavailable()
pytestmark = [
    pytest.mark.process,
    pytest.mark.timeout(180),
    pytest.mark.skipif(bool(REASON), reason=f"no private networks here: {REASON}"),
]

SESSION_S = 2.0
SLOWNESS_S = 5.0
"""What a busy machine may need on top of what is promised."""
SETTINGS = {
    "broker.session.timeout.ms": str(int(SESSION_S * 1000)),
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "1500",
}
ELECTIONS_MAX = 10
FAULT_S = 8.0
"""How long a cut stays that is there for good, as far as the cluster knows: several sessions and elections."""


@pytest.fixture(scope="module")
def network() -> Iterator[PrivateNetwork]:
    with PrivateNetwork(5) as network:
        yield network


@pytest.fixture(scope="module")
def shared(network: PrivateNetwork, protocol: str) -> Iterator[LocalCluster]:
    with running(protocol, 5, settings=SETTINGS, network=network) as cluster:
        yield cluster


@pytest.fixture
def five(shared: LocalCluster, network: PrivateNetwork) -> Iterator[LocalCluster]:
    """All of them vote on the metadata. It is whole when the next test begins, however this one ends."""
    yield shared
    network.heal()
    for node_id in shared.node_ids:
        if shared.broker(node_id).is_running:
            shared.resume(node_id)
    dead = [node_id for node_id in shared.node_ids if not shared.broker(node_id).is_running]
    if dead:
        shared.restart(*dead)
    until(lambda: all(len(Asked(shared, node_id).brokers) == 5 for node_id in shared.node_ids))


def others(cluster: LocalCluster, *node_ids: int) -> list[int]:
    return [node_id for node_id in cluster.node_ids if node_id not in node_ids]


async def is_led_by_another(asked: Asked, topic: str, *leaders: int) -> None:
    await asyncio.to_thread(until, lambda: partition(asked, topic)["leader"] not in (-1, *leaders))


def until_known(asked: Asked, topic: str) -> None:
    """Waits until this broker, which may have been cut off, has caught up with the topic's creation."""
    until(lambda: topic in asked.topics)


async def silent_from(probes: Probes, leader: int, seconds: float) -> None:
    """Until `seconds` have passed the leader may vouch for records, and for none after that."""
    deadline_s = time.monotonic() + seconds
    while time.monotonic() < deadline_s:
        await probes.send()
    for _ in range(5):
        assert leader not in await probes.send()


# -- F14: the leader is cut from its followers, not from the metadata ------------------------------------------------


@pytest.mark.slow
async def test_a_leader_cut_from_its_follower_acknowledges_nothing_alone(protocol: str) -> None:
    """The third broker reaches both, and has no data: the leader's session goes on, and it stays the leader."""
    with PrivateNetwork(3) as network, running(protocol, settings=SETTINGS, network=network) as cluster:
        controller = controller_of(cluster)
        leader, follower = others(cluster, controller)
        await create(cluster, "cut", {"min.insync.replicas": "2"}, [leader, follower])
        probes = Probes(cluster, leader, "cut")
        assert await probes.send() == [leader, follower]
        network.split([leader], [follower])
        while not probes.refused:
            assert await probes.send() == []
        if protocol == ISR:
            assert isr(Asked(cluster, controller), "cut") == [leader], "it has put the other out, and still waits"
        assert await probes.send() == []
        network.heal()
        await whole(cluster, "cut")
        probes.check(await records(cluster, "cut"))


@pytest.mark.slow
async def test_nothing_acknowledged_is_gone_after_the_cut_off_leader_is_lost(
    five: LocalCluster, network: PrivateNetwork, protocol: str
) -> None:
    """Whoever leads next was put out of the set before, and is eligible, as nothing was acknowledged without it; where
    a majority commits, it was among those who were not asked in vain."""
    controller = controller_of(five)
    leader, *followers = others(five, controller)[:3]
    await create(five, "lost-direct", replicas=[leader, *followers])
    await create(five, "lost-load", replicas=[leader, *followers])
    probes = Probes(five, leader, "lost-direct")
    async with Load(five, "lost-load") as load:
        assert len(await probes.send()) >= vouching(protocol, 3)
        await asyncio.sleep(1.0)
        network.split([leader], followers)
        while not probes.refused:
            assert await probes.send() == []
        asked = Asked(five, controller)
        if protocol == ISR:
            await asyncio.to_thread(until, lambda: isr(asked, "lost-load") == [leader])
            assert set(partition(asked, "lost-load")["elr"]) & {*followers}
        acknowledged = len(load.acknowledged)
        await asyncio.sleep(SESSION_S)
        assert len(load.acknowledged) == acknowledged, "a producer waits as long as nobody but the leader has it"
        await asyncio.to_thread(five.kill, leader)
        for topic in ("lost-load", "lost-direct"):
            await is_led_by_another(asked, topic, leader)
        network.heal()
        await asyncio.to_thread(five.restart, leader)
    for topic, check in (("lost-load", load.check), ("lost-direct", probes.check)):
        await whole(five, topic)
        check(await records(five, topic))
    assert len(load.acknowledged) > acknowledged
    await copies_are_equal(five, "lost-direct", [leader, *followers])


async def copies_are_equal(cluster: LocalCluster, topic: str, replicas: list[int]) -> None:
    """What each replica has by itself, once the others know as much as the leader."""
    copies: dict[int, list[str]] = {}

    def are_equal() -> bool:
        try:
            copies.update({node_id: own_copy(cluster, node_id, topic) for node_id in replicas})
        except AssertionError:  # a replica between two roles shows nothing for a moment
            return False
        return len({tuple(copy) for copy in copies.values()}) == 1

    with contextlib.suppress(AssertionError):
        await asyncio.to_thread(until, are_equal)
    values = await read(cluster, topic)
    assert copies == dict.fromkeys(replicas, values)


# -- F15: the leader is cut from the metadata, not from its followers ------------------------------------------------


@pytest.mark.slow
async def test_a_leader_cut_from_the_metadata_stops_within_its_session(
    five: LocalCluster, network: PrivateNetwork, protocol: str
) -> None:
    controller = controller_of(five)
    leader, *followers = others(five, controller)[:3]
    rest = others(five, leader, *followers)
    await create(five, "fenced-direct", replicas=[leader, *followers])
    await create(five, "fenced-load", replicas=[leader, *followers])
    probes = Probes(five, leader, "fenced-direct")
    async with Load(five, "fenced-load") as load:
        assert len(await probes.send()) >= vouching(protocol, 3)
        network.split([leader], rest)
        if protocol == ISR:  # whom a majority follows may ask it for its vote
            await silent_from(probes, leader, SESSION_S + SLOWNESS_S)
        asked = Asked(five, followers[0])
        await asyncio.to_thread(until, lambda: asked.brokers[leader] is False)
        await is_led_by_another(asked, "fenced-direct", leader)
        assert leader not in isr(asked, "fenced-direct")
        network.heal()
    for topic, check in (("fenced-load", load.check), ("fenced-direct", probes.check)):
        await whole(five, topic)
        check(await records(five, topic))
    assert load.gap_s_max < SESSION_S + SLOWNESS_S
    await copies_are_equal(five, "fenced-direct", [leader, *followers])


# -- F17: a minority, with leader and controller in it ---------------------------------------------------------------


@pytest.mark.slow
async def test_a_minority_acknowledges_nothing_and_the_majority_goes_on(
    five: LocalCluster, network: PrivateNetwork, protocol: str
) -> None:
    leader = controller_of(five)
    neighbour, *majority = others(five, leader)
    replicas = [leader, *majority[:2]]
    await create(five, "split-direct", replicas=replicas)
    await create(five, "split-load", replicas=replicas)
    probes, among_most = Probes(five, leader, "split-direct"), Asked(five, majority[2])
    async with Load(five, "split-load") as load:
        assert len(await probes.send()) >= vouching(protocol, 3)
        network.split([leader, neighbour], majority)
        for _ in range(5):
            assert await probes.send() == []
        undecided = asyncio.create_task(asyncio.to_thread(Asked(five, neighbour).create, "split-never"))
        await is_led_by_another(among_most, "split-load", leader)
        for _ in range(5):
            assert await probes.send() == []
        assert among_most.create("split-decided").status == 201
        assert (await undecided).status in {503, 504}
        network.heal()
    for topic, check in (("split-load", load.check), ("split-direct", probes.check)):
        await whole(five, topic)
        check(await records(five, topic))
    assert load.gap_s_max < SESSION_S + 2 * SLOWNESS_S
    for node_id in five.node_ids:
        until_known(Asked(five, node_id), "split-decided")
        assert "split-never" not in Asked(five, node_id).topics
    await copies_are_equal(five, "split-direct", replicas)


# -- F16: cut in one direction, for good -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("way", ["deaf", "mute"])
async def test_a_broker_cut_one_way_for_good_is_done_without(
    five: LocalCluster, network: PrivateNetwork, way: str
) -> None:
    """It leads the partition and the metadata. After a few elections, all is quiet, and stays so."""
    broken = controller_of(five)
    replicas = [broken, *others(five, broken)[:2]]
    topic, witness = f"one-way-{way}", Asked(five, replicas[1])
    await create(five, topic, replicas=replicas)
    elections = metric(witness, "tidelog_controller_changes_total")
    async with Load(five, topic) as load:
        await asyncio.sleep(1.0)
        (network.deafen if way == "deaf" else network.mute)(broken)
        await is_led_by_another(witness, topic, broken)
        await asyncio.sleep(FAULT_S)
        before, acknowledged = standing(witness, topic), len(load.acknowledged)
        await asyncio.sleep(FAULT_S)
        assert standing(witness, topic) == before, "nobody is elected any more"
        assert len(load.acknowledged) > acknowledged
        assert metric(witness, "tidelog_controller_changes_total") - elections <= ELECTIONS_MAX
        network.heal()
    await whole(five, topic)
    load.check(await records(five, topic))
    assert load.gap_s_max < SESSION_S + 2 * SLOWNESS_S


def standing(asked: Asked, topic: str) -> tuple[int, float, int, int]:
    """Returns who leads, and since which election."""
    known = partition(asked, topic)
    changes = metric(asked, "tidelog_controller_changes_total")
    return asked.controller, changes, known["leader"], known["leader_epoch"]


# -- F12, F13: one minority sleeps while the other writes, and then the other way round ------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["paused", "cut off"])
async def test_who_slept_does_not_decide_without_who_was_awake(
    five: LocalCluster, network: PrivateNetwork, fault: str
) -> None:
    """What was written while 1 and 2 were away is on 3, 4 and 5. Of these only 3 comes back to them, out of a crash."""

    def away(*node_ids: int) -> None:
        for node_id in node_ids:
            if fault == "paused":
                five.pause(node_id)
            else:
                network.isolate(node_id)

    def back(*node_ids: int) -> None:
        network.heal()
        if fault == "paused":
            for node_id in node_ids:
                five.resume(node_id)

    topic = "slept-" + fault.replace(" ", "-")
    await create(five, topic, {"min.insync.replicas": "3"}, five.node_ids)
    async with Load(five, topic) as load:
        away(1, 2)
        await asyncio.to_thread(until, lambda: isr(Asked(five, 3), topic) == [3, 4, 5])
        acknowledged = len(load.acknowledged)
        await asyncio.to_thread(until, lambda: len(load.acknowledged) > acknowledged)
        five.kill(3)
        acknowledged = len(load.acknowledged)
        back(1, 2)
        away(4, 5)
        await asyncio.sleep(SESSION_S)
        assert (await asyncio.to_thread(Asked(five, 1).create, "split-brain")).status in {503, 504}
        await asyncio.to_thread(five.restart, 3)
        await asyncio.sleep(SESSION_S)
        back(4, 5)
    await whole(five, topic)
    load.check(await records(five, topic))
    assert len(load.acknowledged) > acknowledged
    await copies_are_equal(five, topic, five.node_ids)
