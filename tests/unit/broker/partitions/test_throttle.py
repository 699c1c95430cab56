"""Replicas that move are held to a rate, those that are in sync are not, and nobody waits for those that are held."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.broker.conftest import batch, produce
from tests.unit.broker.isr.stage import PARTITION, Stage, play, until
from tests.unit.controller.cluster import IsrCluster, topic_id
from tidelog.broker.isr.replica_messages import FetchReplicas, FetchStatus, FollowerState, ReplicasFetched
from tidelog.broker.partitions.throttle import Throttle
from tidelog.broker.runtime.stats import Stats
from tidelog.config.schema import BrokerConfig
from tidelog.config.values import INT64_MAX
from tidelog.controller.partition_commands import AlterReassignments
from tidelog.model.cluster import ClusterImage, PartitionInfo, Topic
from tidelog.model.ids import NodeId, PartitionId, TopicId
from tidelog.replication.isr.events import Tick
from tidelog.sim.kit.environment import SimClock
from tidelog.sim.kit.loop import run
from tidelog.transport.peer import Hello

RATE = 100_000
BATCH_BYTES = 2_000
WINDOW_S = 5.0


def moving_to_2(throttle: int = RATE, isr: tuple[int, ...] = (1,)) -> ClusterImage:
    """Broker 1 leads the stage's partition, and 2 is being added."""
    members = tuple(NodeId(node) for node in isr)
    info = PartitionInfo(0, NodeId(1), 1, (NodeId(2), NodeId(1)), members, adding=(NodeId(2),), removing=(NodeId(1),))
    topic = Topic("t", PARTITION.topic_id, {}, (info,))
    return ClusterImage("c1", topics={"t": topic}, moves_throttle=throttle)


def throttle(stage: Stage, image: ClusterImage, *nodes: int) -> None:
    for node in nodes:
        stage.throttles[node].follow(image)


async def copied(stage: Stage, seconds: float) -> int:
    """How many bytes arrive at the follower."""
    before = stage.follower.log.log_bytes
    await asyncio.sleep(seconds)
    return stage.follower.log.log_bytes - before


# -- who is held -------------------------------------------------------------------------------------------------------


def test_only_replicas_that_a_move_adds_and_that_are_not_in_sync_are_held() -> None:
    async def main() -> None:
        cluster = IsrCluster(5)
        throttles = {
            node: Throttle(NodeId(node), BrokerConfig(), SimClock(asyncio.get_running_loop()), Stats())
            for node in (1, 2, 4, 5)
        }
        t = PartitionId(TopicId(topic_id("t")), 0)

        def held() -> dict[int, list[int]]:
            for one in throttles.values():
                one.follow(cluster.image)
            return {node: [other for other in range(6) if one.is_held(t, other)] for node, one in throttles.items()}

        cluster.fence(3)
        cluster.reassign(4, 5, 1)
        assert throttles[1].sending.rate is None
        cluster.do(AlterReassignments((), RATE))
        assert held() == {1: [4, 5], 2: [], 4: [4], 5: [5]}, "3 only lags, and is waited for"
        assert throttles[1].sending.rate == throttles[4].receiving.rate == RATE
        cluster.ask(1, 2, 4)
        assert held() == {1: [5], 2: [], 4: [], 5: [5]}
        cluster.call_off()
        assert held() == {1: [], 2: [], 4: [], 5: []}
        assert throttles[1].sending.rate is None

    run(main)


def test_the_brokers_own_settings_hold_until_a_move_says_otherwise() -> None:
    async def main() -> None:
        config = BrokerConfig.model_validate(
            {"leader.replication.throttled.rate": 1_000, "follower.replication.throttled.rate": 2_000}
        )
        found = Throttle(NodeId(1), config, SimClock(asyncio.get_running_loop()), Stats())
        found.follow(moving_to_2(throttle=0))
        assert (found.sending.rate, found.receiving.rate, found.is_held(PARTITION, 2)) == (1_000, 2_000, True)
        found.follow(moving_to_2(throttle=RATE))
        assert (found.sending.rate, found.receiving.rate) == (RATE, RATE)

    run(main)


# -- how much is copied, in virtual time -------------------------------------------------------------------------------


@pytest.mark.parametrize(("of_the_move", "leader", "follower"), [(RATE, None, None), (0, RATE, None), (0, None, RATE)])
def test_the_rate_is_held_to_within_ten_percent(of_the_move: int, leader: int | None, follower: int | None) -> None:
    async def story(stage: Stage) -> None:
        stage.leader.write(1, *[b"x" * BATCH_BYTES] * 2_000)
        throttle(stage, moving_to_2(throttle=of_the_move), 1, 2)
        stage.lead(isr=(1,))
        stage.fetch(stage.follow())
        await asyncio.sleep(1.0)
        for _ in range(4):
            assert await copied(stage, WINDOW_S) == pytest.approx(RATE * WINDOW_S, rel=0.1)
        assert stage.follower.content() == stage.leader.content()[: stage.follower.log.log_bytes]

    settings = {
        "leader.replication.throttled.rate": leader or INT64_MAX,
        "follower.replication.throttled.rate": follower or INT64_MAX,
    }
    play(story, BrokerConfig.model_validate(settings))


def test_another_rate_holds_at_once_and_without_one_all_is_copied() -> None:
    async def story(stage: Stage) -> None:
        stage.leader.write(1, *[b"x" * BATCH_BYTES] * 2_000)
        throttle(stage, moving_to_2(), 1, 2)
        stage.lead(isr=(1,))
        stage.fetch(stage.follow())
        await asyncio.sleep(1.0)
        throttle(stage, moving_to_2(throttle=3 * RATE), 1, 2)
        assert await copied(stage, WINDOW_S) == pytest.approx(3 * RATE * WINDOW_S, rel=0.1)
        throttle(stage, moving_to_2(throttle=0), 1, 2)
        await copied(stage, 1.0)
        assert stage.follower.content() == stage.leader.content()
        copied_bytes = len(stage.leader.content())
        assert stage.leader.stats.moves_sent_bytes == stage.follower.stats.moves_received_bytes == copied_bytes

    play(story)


def test_a_batch_larger_than_the_rate_passes_and_the_rate_is_held_all_the_same() -> None:
    async def story(stage: Stage) -> None:
        stage.leader.write(1, *[b"x" * (RATE // 2)] * 110)
        throttle(stage, moving_to_2(), 1, 2)
        stage.lead(isr=(1,))
        stage.fetch(stage.follow())
        await asyncio.sleep(1.0)
        assert await copied(stage, 50.0) == pytest.approx(RATE * 50, rel=0.1)

    play(story)


def test_a_replica_that_is_in_sync_is_not_held() -> None:
    async def story(stage: Stage) -> None:
        throttle(stage, moving_to_2(throttle=1, isr=(1, 2)), 1, 2)
        partition = stage.lead()
        stage.fetch(stage.follow())
        for _ in range(20):
            receipt = await produce(partition, batch(b"x" * BATCH_BYTES, timestamp_ms=1))
            assert receipt.acked_by == [1, 2]
        assert asyncio.get_running_loop().time() < 1.0

    play(story)


def test_one_that_catches_up_is_proposed_for_the_in_sync_set_and_then_held_no_more() -> None:
    async def story(stage: Stage) -> None:
        stage.leader.write(1, *[b"x" * BATCH_BYTES] * 100)
        throttle(stage, moving_to_2(), 1, 2)
        stage.lead(isr=(1,))
        stage.fetch(stage.follow())
        await until(lambda: bool(stage.asked))
        assert stage.follower.log.durable_offset == 100
        assert 1.8 < asyncio.get_running_loop().time() < 3.0, "200 kB at 100 kB/s"

    play(story)


def test_producers_do_not_wait_until_one_that_is_slow_to_catch_up_has_done_so() -> None:
    """It is close behind long before it has everything, if the throttle is little more than what is written."""

    async def story(stage: Stage) -> None:
        loop = asyncio.get_running_loop()
        stage.leader.write(1, *[b"x" * BATCH_BYTES] * 500)
        throttle(stage, moving_to_2(), 1, 2)
        partition = stage.lead(isr=(1,), lag_ms_max=30_000)
        stage.fetch(stage.follow())
        waits: list[float] = []

        async def write() -> None:
            began_s = loop.time()
            await produce(partition, batch(b"x" * BATCH_BYTES, timestamp_ms=1))
            waits.append(loop.time() - began_s)

        async with asyncio.TaskGroup() as tasks:
            while not stage.asked:
                tasks.create_task(write())
                await asyncio.sleep(BATCH_BYTES / (0.8 * RATE))
                partition.tell(Tick(int(loop.time() * 1000)))
                stage.lease.renew(loop.time())
                assert loop.time() < 120
        assert len(waits) > 1_000 and max(waits) < 4.0

    play(story)


# -- the fetch session -------------------------------------------------------------------------------------------------

OTHER = PartitionId(TopicId("b" * 32), 0)


def state(partition_id: PartitionId, offset: int = 0) -> FollowerState:
    return FollowerState(*partition_id, 1, offset, -1 if offset == 0 else 1, offset, 0)


async def ask(stage: Stage, *states: FollowerState, number: int = 0, granted: int = 1 << 30) -> ReplicasFetched:
    asked = FetchReplicas(2, 12, "s", number, states, (), 300, 1 << 20, granted)
    answer = (await stage.service.fetch(Hello(2, "life"), asked)).message
    assert isinstance(answer, ReplicasFetched)
    return answer


def test_a_replica_that_is_held_delays_no_other_in_its_session() -> None:
    async def story(stage: Stage) -> None:
        loop = asyncio.get_running_loop()
        stage.leader.write(1, *[b"x" * BATCH_BYTES] * 10)
        throttle(stage, moving_to_2(throttle=1), 1)
        stage.lead(isr=(1,))
        began_s = loop.time()
        (unknown,) = (await ask(stage, state(PARTITION), state(OTHER))).partitions
        assert (unknown.topic_id, unknown.status) == (OTHER.topic_id, FetchStatus.UNKNOWN_EPOCH)
        assert loop.time() == began_s, "answered at once"
        assert (await ask(stage, number=1)).partitions == (), "and nothing else is to be said"
        assert loop.time() == pytest.approx(began_s + 0.3, abs=0.01), "which takes a fetch's time, and no busy waiting"

    play(story)


def test_what_the_follower_does_not_want_now_waits_for_its_next_question() -> None:
    async def story(stage: Stage) -> None:
        stage.leader.write(1, b"x")
        throttle(stage, moving_to_2(), 1)
        stage.lead(isr=(1,))
        await asyncio.sleep(1.0)
        assert (await ask(stage, state(PARTITION), granted=0)).partitions == ()
        (entry,) = (await ask(stage, number=1)).partitions
        assert entry.size > 0

    play(story)


def test_whoever_is_released_is_answered_at_once() -> None:
    async def story(stage: Stage) -> None:
        stage.leader.write(1, b"x")
        throttle(stage, moving_to_2(throttle=1), 1)
        stage.lead(isr=(1,))
        asking = asyncio.ensure_future(ask(stage, state(PARTITION)))
        await asyncio.sleep(0.1)
        assert not asking.done()
        released_s = asyncio.get_running_loop().time()
        throttle(stage, moving_to_2(isr=(1, 2)), 1)
        (entry,) = (await asking).partitions
        assert entry.size > 0 and asyncio.get_running_loop().time() == released_s

    play(story)


def test_a_question_that_is_held_is_told_of_the_end_of_the_leadership() -> None:
    async def story(stage: Stage) -> None:
        stage.leader.write(1, b"x")
        throttle(stage, moving_to_2(throttle=1), 1)
        stage.lead(isr=(1,))
        asking = asyncio.ensure_future(ask(stage, state(PARTITION)))
        await asyncio.sleep(0.1)
        del stage.partitions[PARTITION]
        stage.service.forget(PARTITION)
        (entry,) = (await asking).partitions
        assert entry.status is FetchStatus.UNKNOWN_EPOCH

    play(story)
