"""Instances live with their coordinator: through its death, through rebalances, until they are quiet for too long."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from tests.sim.rest_consumers.stage import NODES, Stage, play
from tidelog.broker.broker import Broker, NewTopic
from tidelog.broker.rest_consumers.instance import WAITING_MAX
from tidelog.broker.rest_consumers.requests import ReadRecords
from tidelog.model.errors import (
    CoordinatorLost,
    CoordinatorNotAvailable,
    InstanceExists,
    NotOwned,
    Overloaded,
    UnknownInstance,
)
from tidelog.model.groups import LEAVE, ConfigureInstance, Heartbeat


def test_every_request_may_go_to_another_broker() -> None:
    async def story(stage: Stage) -> None:
        await stage.open(1)
        with pytest.raises(InstanceExists):
            await stage.open(2)
        await stage.subscribe(2)
        assert await stage.assigned(3) == [0, 1]
        await stage.produce("a", "b")
        assert await stage.read(1, wait_ms=1_000) == ["a", "b"]
        await stage.commit(2)
        assert await stage.partitions(3) == {0: 2, 1: 0}
        await stage.close_instance(1)
        for node in NODES:
            with pytest.raises(UnknownInstance):
                await stage.read(node)

    play(story, partitions=2)


@pytest.mark.parametrize("is_subscribed", [True, False])
def test_it_survives_the_death_of_its_coordinator(is_subscribed: bool) -> None:
    """Between two reads. It goes on at the group's committed offset, so what was read beyond comes again; and is the
    same member, so nobody else gets its partitions meanwhile."""

    async def story(stage: Stage) -> list[str]:
        await stage.open(1)
        await (stage.subscribe(1) if is_subscribed else stage.assign(1, 0))
        await stage.produce("a", "b", "c")
        assert await stage.read(1, wait_ms=1_000) == ["a", "b", "c"]
        await stage.commit(1, 1)
        dead = stage.coordinator
        epoch = await member_epoch(stage)
        await stage.machines[dead].kill()
        one, other = stage.alive
        found = await stage.read(one, wait_ms=1_000)
        await stage.produce("d")
        found += await stage.read(other, wait_ms=5_000)
        assert await member_epoch(stage) == epoch
        await stage.commit(one)
        assert await stage.partitions(other) == {0: 4}
        return found

    async def member_epoch(stage: Stage) -> int:
        coordinator = stage.broker(stage.coordinator).groups.local("g")
        assert coordinator is not None
        assert coordinator._state is not None
        groups = coordinator._state.shard.groups
        return groups["g"].epoch if is_subscribed and "g" in groups else 0

    assert play(story) == ["b", "c", "d"]


@pytest.mark.slow
def test_a_coordinator_that_dies_before_the_group_has_heard_of_another_subscription() -> None:
    """The instance is kept with the new one, the member with the old one. It joins by the same name, wants something
    else, and has no epoch to say so with: so it leaves first."""

    async def story(stage: Stage) -> list[int]:
        await stage.call(1, lambda broker: broker.admin.create_topic(NewTopic("u", 2, 3)))
        for name in ("i", "j"):
            await stage.open(1, name)
            await stage.subscribe(1, name)
        assert sorted(await stage.assigned(1, "i") + await stage.assigned(1, "j")) == [0]
        wanted = ConfigureInstance(group="g", instance="i", topics=("u",))
        deadline_s = asyncio.get_running_loop().time() + 30
        await stage.call(1, lambda broker: broker.groups.ask(wanted, deadline_s=deadline_s))
        await stage.machines[stage.coordinator].kill()
        return await stage.assigned(stage.alive[0])

    assert play(story) == [0, 1]


@pytest.mark.slow
def test_a_read_that_waits_outlives_its_coordinator() -> None:
    async def story(stage: Stage) -> list[str]:
        await stage.open(1)
        await stage.subscribe(1)
        reading = asyncio.ensure_future(stage.read(stage.others[0], wait_ms=30_000))
        await asyncio.sleep(1)
        await stage.machines[stage.coordinator].kill()
        await asyncio.sleep(3)
        await stage.produce("a")
        return await reading

    assert play(story) == ["a"]


def test_an_instance_that_is_quiet_for_too_long_is_deleted() -> None:
    """And only then; its partitions go to others at once."""

    async def story(stage: Stage) -> None:
        for name in ("quiet", "busy"):
            await stage.open(1, name)
            await stage.subscribe(2, name)
        for _ in range(5):
            await asyncio.sleep(1.6)
            await stage.read(3, "busy")
            assert len(await stage.assigned(3, "busy")) == 2
        await asyncio.sleep(3.2)
        assert await stage.assigned(3, "busy") == [0, 1, 2, 3]
        with pytest.raises(UnknownInstance):
            await stage.read(2, "quiet")
        await asyncio.sleep(11.5)
        for node in NODES:
            with pytest.raises(UnknownInstance):
                await stage.read(node, "busy")
            assert stage.broker(node).rest_consumers.instances == 0

    play(story, partitions=4, consumer_instance_timeout_ms=10_000)


@pytest.mark.slow
def test_one_that_nobody_asks_after_a_failover_is_missed_all_the_same() -> None:
    async def story(stage: Stage) -> None:
        await stage.open(1)
        await stage.subscribe(1)
        await stage.machines[stage.coordinator].kill()
        await asyncio.sleep(7)
        keeper = stage.broker(stage.coordinator).rest_consumers
        assert keeper.instances == 1
        await asyncio.sleep(11.5)
        assert keeper.instances == 0
        with pytest.raises(UnknownInstance):
            await stage.assigned(stage.alive[0])

    play(story, consumer_instance_timeout_ms=10_000)


@pytest.mark.slow
def test_a_read_that_waits_for_long_is_not_quiet() -> None:
    async def story(stage: Stage) -> list[str]:
        await stage.open(1)
        await stage.subscribe(1)
        reading = asyncio.ensure_future(stage.read(1, wait_ms=30_000))
        await asyncio.sleep(25)
        await stage.produce("a")
        return await reading

    assert play(story, consumer_instance_timeout_ms=10_000) == ["a"]


@pytest.mark.parametrize("auto_commit", [True, False])
def test_what_is_taken_away_comes_again_as_far_as_it_is_not_committed(auto_commit: bool) -> None:
    async def story(stage: Stage) -> list[str]:
        await stage.open(1, "old", auto_commit=auto_commit)
        await stage.subscribe(1, "old")
        for value in ("processed", "returned"):
            await stage.produce(value, partition=1)
            assert await stage.read(2, "old", wait_ms=1_000) == [value]
        await stage.open(1, "new")
        await stage.subscribe(1, "new")
        await asyncio.sleep(1)
        (kept,), (given,) = await stage.assigned(3, "old"), await stage.assigned(3, "new")
        name = "new" if given == 1 else "old"
        if kept == 1:
            await stage.close_instance(2, "old")
            name = "new"
            await asyncio.sleep(1)
        with pytest.raises((NotOwned, UnknownInstance)):
            await stage.commit(1, 0, 2, name="old")
        return await stage.read(2, name, wait_ms=1_000)

    found = play(story, partitions=2)
    assert found in ((["returned"], []) if auto_commit else (["processed", "returned"],))


@pytest.mark.slow
def test_a_rebalance_wakes_a_read_that_waits() -> None:
    """It goes on with what it has left, and what the other had comes to it."""

    async def story(stage: Stage) -> None:
        await stage.open(1, "a")
        await stage.subscribe(1, "a")
        reading = asyncio.ensure_future(stage.read(1, "a", wait_ms=30_000))
        await asyncio.sleep(1)
        await stage.open(2, "b")
        await stage.subscribe(2, "b")
        await asyncio.sleep(1)
        (had,) = await stage.assigned(3, "b")
        assert len(await stage.assigned(3, "a")) == 1
        await stage.close_instance(2, "b")
        await asyncio.sleep(1)
        assert not reading.done()
        await stage.produce("x", partition=had)
        assert await reading == ["x"]

    play(story, partitions=2)


def test_one_whose_member_was_expelled_joins_again() -> None:
    async def story(stage: Stage) -> list[str]:
        await stage.open(1)
        await stage.subscribe(1)
        await stage.produce("a")
        assert await stage.read(1, wait_ms=1_000) == ["a"]
        await stage.commit(1)
        leave = Heartbeat(group="g", member_id="i", member_epoch=LEAVE)
        await stage.call(2, lambda broker: broker.groups.ask(leave, deadline_s=asyncio.get_running_loop().time() + 5))
        await stage.produce("b")
        return await stage.read(3, wait_ms=5_000)

    assert play(story) == ["b"]


def test_what_a_client_did_not_get_is_taken_back() -> None:
    async def story(stage: Stage) -> None:
        await stage.open(1)
        await stage.subscribe(1)
        await stage.produce("a")
        for node in NODES:
            attempt = f"by {node}"
            assert await stage.read(node, wait_ms=1_000, attempt=attempt) == ["a"]
            gone = ReadRecords(group="g", instance="i", attempt=attempt, bytes_max=1)
            await stage.call(node, partial(abandoned, gone))
            await asyncio.sleep(0.1)
        assert await stage.read(1, wait_ms=1_000) == ["a"]
        assert await stage.read(1) == []

    async def abandoned(request: ReadRecords, broker: Broker) -> None:
        broker.rest_consumers.abandon(request)

    play(story)


@pytest.mark.slow
def test_where_there_is_no_coordinator_nothing_is_done() -> None:
    async def story(stage: Stage) -> None:
        await stage.open(1)
        await stage.subscribe(1)
        await stage.produce("a")
        for node in (one := stage.coordinator, next(node for node in NODES if node != one)):
            await stage.machines[node].kill()
        (left,) = stage.alive
        with pytest.raises((CoordinatorNotAvailable, CoordinatorLost)) as refused:
            await stage.read(left)
        assert refused.value.status in (503, 504)
        for node in NODES:
            if node != left:
                await stage.machines[node].boot()
        assert await stage.read(left, wait_ms=20_000) == ["a"]

    play(story)


def test_requests_of_one_instance_are_bounded() -> None:
    """They wait for their turn, and there is a committed offset for so many."""

    async def story(stage: Stage) -> None:
        await stage.open(1)
        keeper = stage.broker(stage.coordinator).rest_consumers
        instance = keeper._registry.find("g", "i")
        assert instance is not None
        async with instance:
            waiting = [asyncio.ensure_future(stage.assigned(stage.coordinator)) for _ in range(WAITING_MAX)]
            await asyncio.sleep(0.1)
            with pytest.raises(Overloaded):
                await stage.assigned(stage.others[0])
        assert await asyncio.gather(*waiting) == [[]] * WAITING_MAX
        assert await stage.assigned(1) == []

    play(story)


def test_a_repeated_attempt_has_its_records_again() -> None:
    async def story(stage: Stage) -> None:
        await stage.open(1)
        await stage.subscribe(1)
        await stage.produce("a")
        for _ in range(2):
            assert await stage.read(2, wait_ms=1_000, attempt="one") == ["a"]
        await stage.produce("b")
        assert await stage.read(2, wait_ms=1_000, attempt="two") == ["b"]

    play(story)
