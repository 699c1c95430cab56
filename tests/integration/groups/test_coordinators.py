"""Groups on three brokers: any of them takes any request, and what was acknowledged survives each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import pairwise

import pytest

from tests.integration.replication.three_brokers import NODES, ThreeBrokers, three_brokers, until
from tests.unit.broker.conftest import batch
from tidelog.broker.broker import NewTopic
from tidelog.broker.groups import reach
from tidelog.controller.partition_commands import ElectionType, ElectLeaders
from tidelog.model.errors import (
    CoordinatorLost,
    CoordinatorNotAvailable,
    InvalidRequest,
    TidelogError,
    UnknownGroup,
    UnknownMember,
)
from tidelog.model.groups import (
    CommitAnswer,
    CommitOffsets,
    CommittedOffset,
    DeleteGroup,
    DescribeGroup,
    FetchOffsets,
    Heartbeat,
    HeartbeatAnswer,
    SetOffsets,
    TopicPartitions,
)
from tidelog.model.names import OFFSETS_TOPIC
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.loop import run
from tidelog.sim.kit.rot import flip_bit

ALL = (TopicPartitions("t", (0, 1, 2, 3)),)
BOTH = pytest.mark.parametrize("protocol", ["paxos", pytest.param("isr", marks=pytest.mark.slow)])


def play(story: Callable[[ThreeBrokers], Awaitable[None]], protocol: str = "paxos", **more: object) -> None:
    """Runs a story on three brokers, in virtual time."""

    async def main() -> None:
        settings = {"offsets_topic_commit_protocol": protocol, "offsets_topic_num_partitions": 2, **more}
        async with three_brokers(**settings) as three:
            await three.brokers[1].admin.create_topic(NewTopic("t", 4, 3))
            await story(three)

    run(main)


def soon(seconds: float = 15.0) -> float:
    return asyncio.get_running_loop().time() + seconds


async def join(three: ThreeBrokers, node: int, member: str, group: str = "g") -> HeartbeatAnswer:
    request = Heartbeat(group=group, member_id=member, member_epoch=0, topics=("t",), owned=())
    return await three.brokers[node].groups.ask(request, deadline_s=soon())


async def beat(
    three: ThreeBrokers, node: int, was: HeartbeatAnswer, owned: tuple[TopicPartitions, ...] | None, wait_ms: int = 0
) -> HeartbeatAnswer:
    request = Heartbeat(group="g", member_id=was.member_id, member_epoch=was.member_epoch, owned=owned, wait_ms=wait_ms)
    return await three.brokers[node].groups.ask(request, deadline_s=soon())


async def commit(three: ThreeBrokers, node: int, offset: int, member: HeartbeatAnswer | None = None) -> CommitAnswer:
    request = CommitOffsets(
        group="g",
        member_id=member.member_id if member else "",
        member_epoch=member.member_epoch if member else -1,
        sequence=offset,
        offsets=(CommittedOffset("t", 0, offset),),
    )
    return await three.brokers[node].groups.ask(request, deadline_s=soon())


async def keep_committing(three: ThreeBrokers, node: int, member: HeartbeatAnswer) -> tuple[int, int]:
    """Until cancelled; the last offset that was sent, and the last one that was acknowledged."""
    sent = acknowledged = 0
    try:
        while True:
            sent += 1
            with suppress(CoordinatorLost, CoordinatorNotAvailable):
                answer = await commit(three, node, sent, member)
                assert [verdict.code for verdict in answer.verdicts] == [0]
                acknowledged = sent
            await asyncio.sleep(0.05)
    except asyncio.CancelledError:
        return sent, acknowledged


async def committed(three: ThreeBrokers, node: int) -> int:
    wanted = (TopicPartitions("t", (0,)),)
    answer = await three.brokers[node].groups.ask(FetchOffsets(group="g", partitions=wanted), deadline_s=soon())
    return answer.offsets[0].offset


@BOTH
def test_any_broker_takes_any_request(protocol: str) -> None:
    async def story(three: ThreeBrokers) -> None:
        joined = [await join(three, node, "m") for node in NODES]
        assert joined == [joined[0]] * 3, "a repeated join is the same one"
        assert joined[0].assignment == ALL
        coordinator = joined[0].coordinator
        assert [three.brokers[node].groups.coordinator_node("g") for node in NODES] == [coordinator] * 3
        local = {node: three.brokers[node].groups.local("g") for node in NODES}
        assert [node for node in NODES if local[node] is not None] == [coordinator]
        for node in NODES:
            answer = await commit(three, node, 10 + node, joined[0])
            assert [verdict.code for verdict in answer.verdicts] == [0]
            assert [await committed(three, other) for other in NODES] == [10 + node] * 3
        for node in NODES:
            (listed,) = await three.brokers[node].groups.list_groups(deadline_s=soon())
            assert (listed.group, listed.members, listed.coordinator) == ("g", 1, coordinator)
            described = await three.brokers[node].groups.ask(DescribeGroup(group="g"), deadline_s=soon())
            assert described.coordinator == coordinator
        with pytest.raises(UnknownMember):
            await beat(three, 1, HeartbeatAnswer("nobody", 1, 0, 0, None), None)

    play(story, protocol)


def test_members_that_join_at_once_hold_up_nobody_else() -> None:
    """Between any two decisions of a coordinator everything else of its broker has its turn."""

    async def story(three: ThreeBrokers) -> None:
        node = (await join(three, 1, "first")).coordinator
        coordinator = three.brokers[node].groups.local("g")
        assert coordinator is not None and coordinator.shard is not None
        members = coordinator.shard.groups["g"].members
        seen = [len(members)]
        joining = asyncio.gather(*[join(three, node, f"m{number}") for number in range(50)])
        while not joining.done():
            await asyncio.sleep(0)
            seen.append(len(members))
            if seen[-1] == seen[-2] == 51:
                await joining
        assert seen[-1] == 51
        assert max(after - before for before, after in pairwise(seen)) == 1

    play(story)


def test_a_waiting_heartbeat_is_answered_by_the_news() -> None:
    async def story(three: ThreeBrokers) -> None:
        first = await join(three, 1, "a")
        first = await beat(three, 1, first, first.assignment)
        assert first.assignment is None, "nothing new"
        remote = next(node for node in NODES if node != first.coordinator)
        waiting = asyncio.create_task(beat(three, remote, first, None, wait_ms=15_000))
        coordinator = three.brokers[first.coordinator].groups.local("g")
        assert coordinator is not None
        await until(lambda: coordinator.polls == 1)
        second = await join(three, 2, "b")
        assert not second.assignment, "nothing is free yet"
        news = await waiting
        assert news.member_epoch == second.member_epoch
        assert news.assignment == (TopicPartitions("t", (0, 1)),) or news.assignment == (TopicPartitions("t", (2, 3)),)
        waiting = asyncio.create_task(beat(three, remote, second, None, wait_ms=15_000))
        await beat(three, remote, news, news.assignment)
        gained = await waiting
        assert gained.assignment is not None
        assert sorted((*gained.assignment, *news.assignment), key=lambda held: held.partitions) == [
            TopicPartitions("t", (0, 1)),
            TopicPartitions("t", (2, 3)),
        ]

    play(story)


def test_waits_at_another_broker_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(three: ThreeBrokers) -> None:
        monkeypatch.setattr(reach, "FORWARDED_POLLS_MAX", 0)
        first = await join(three, 1, "a")
        remote = next(node for node in NODES if node != first.coordinator)
        first = await beat(three, remote, first, first.assignment)
        answer = await beat(three, remote, first, None, wait_ms=1_000_000)
        assert answer.assignment is None, "answered at once, with no news"

    play(story)


@BOTH
def test_acknowledged_offsets_survive_the_death_of_coordinators(protocol: str) -> None:
    """F81: commits go on while their coordinator is replaced, twice."""

    async def story(three: ThreeBrokers) -> None:
        member = await join(three, 1, "m")
        victim = member.coordinator
        asking = next(node for node in NODES if node != victim)
        work = asyncio.create_task(keep_committing(three, asking, member))
        await asyncio.sleep(0.5)
        three.cut_off(victim)
        await asyncio.sleep(3)
        assert three.brokers[asking].groups.coordinator_node("g") != victim
        three.network.heal()
        await three.stop(victim)
        await asyncio.sleep(1)
        await three.start(victim)
        work.cancel()
        last, acknowledged = await work
        assert acknowledged > 20
        for node in three.brokers:
            assert acknowledged <= await committed(three, node) <= last

    play(story, protocol)


@BOTH
def test_a_coordinator_of_the_past_answers_nothing(protocol: str) -> None:
    """F80: it is cut off, and goes on to believe that it leads."""

    async def story(three: ThreeBrokers) -> None:
        member = await join(three, 1, "m")
        await commit(three, 1, 1, member)
        old = member.coordinator
        zombie = three.brokers[old].groups.local("g")
        assert zombie is not None
        others = [node for node in NODES if node != old]
        three.cut_off(old)
        await until(lambda: any(three.brokers[node].groups.local("g") is not None for node in others))
        await commit(three, others[0], 2, member)
        assert three.brokers[old].groups.local("g") is zombie, "it has not heard of its end"
        with pytest.raises((CoordinatorNotAvailable, CoordinatorLost)):
            await zombie.ask(FetchOffsets(group="g"), soon(0.3))
        with pytest.raises((CoordinatorNotAvailable, CoordinatorLost)):
            request = CommitOffsets(group="g", member_id="m", member_epoch=member.member_epoch, sequence=3, offsets=())
            await zombie.ask(request, soon(0.3))
        three.network.heal()
        await until(lambda: three.brokers[old].groups.local("g") is not zombie)
        assert await committed(three, old) == 2

    play(story, protocol)


@pytest.mark.slow
def test_a_coordinator_that_is_replaced_on_purpose_tells_no_old_place() -> None:
    """It is cut off when its partition is handed on, which does not wait for the end of its lease."""

    async def story(three: ThreeBrokers) -> None:
        member = await join(three, 1, "m")
        preferred = member.coordinator
        await three.stop(preferred)
        (asked, _) = (node for node in NODES if node != preferred)
        await until(lambda: three.brokers[asked].groups.coordinator_node("g") != preferred)
        await three.start(preferred)
        old = three.brokers[asked].groups.coordinator_node("g")
        zombie = three.brokers[old].groups.local("g")
        assert zombie is not None
        await commit(three, old, 1, member)
        three.cut_off(old)
        command = ElectLeaders(ElectionType.PREFERRED)
        election = asyncio.create_task(three.brokers[preferred].admin.elect_leaders(command))
        writing = asyncio.create_task(commit(three, preferred, 2, member))
        while not writing.done():
            with pytest.raises((CoordinatorNotAvailable, CoordinatorLost)):
                await zombie.ask(FetchOffsets(group="g"), soon(0.02))
            await asyncio.sleep(0.01)
        for _ in range(100):
            with pytest.raises((CoordinatorNotAvailable, CoordinatorLost)):
                await zombie.ask(FetchOffsets(group="g"), soon(0.02))
        three.network.heal()
        await asyncio.gather(election, return_exceptions=True)
        assert await committed(three, old) == 2

    play(story)


def test_a_damaged_batch_is_repaired_before_anybody_is_told_anything() -> None:
    async def story(three: ThreeBrokers) -> None:
        for offset in (111, 222):
            await commit(three, 1, offset)
        node = three.brokers[1].groups.coordinator_node("g")
        other = next(known for known in NODES if known != node)
        topic_id = three.brokers[1].topic(OFFSETS_TOPIC).topic_id
        await three.stop(node)
        flip(three.disks[node], topic_id, b'"offset":222')
        await three.start(node)
        assert await committed(three, node) == 222
        async with asyncio.timeout(30):  # it is in sync once its damaged batch is repaired
            while three.brokers[other].groups.coordinator_node("g") != node:
                await three.brokers[other].admin.elect_leaders(ElectLeaders(ElectionType.PREFERRED))
                await asyncio.sleep(0.1)
        assert [await committed(three, asked) for asked in NODES] == [222, 222, 222]
        assert three.brokers[node].stats.repaired_batches == 1

    play(story, "isr")


def flip(disk: SimDisk, topic_id: str, text: bytes) -> None:
    """Damages a record of a topic, once."""
    ((path, position),) = [
        (path, node.data.find(text))
        for path, node in disk.medium.walk().items()
        if topic_id in path and node.data.find(text) >= 0
    ]
    flip_bit(disk.medium, path, position)


def test_users_may_read_it_and_nothing_else() -> None:
    async def story(three: ThreeBrokers) -> None:
        await commit(three, 1, 1)
        await three.brokers[1].groups.list_groups(deadline_s=soon())  # by now both partitions are coordinated
        for node in NODES:
            broker = three.brokers[node]
            for number in (0, 1):
                partition = broker.partition(OFFSETS_TOPIC, number)
                assert (await partition.extent()).high_watermark > 0
                with pytest.raises(InvalidRequest, match="the brokers' own"):
                    await partition.delete_records(1, deadline_s=soon())
                with pytest.raises(InvalidRequest, match="the brokers' own"):
                    await partition.produce(batch(b"mine"), acks=-1, deadline_s=soon())
            refused = (
                broker.admin.delete_topic(OFFSETS_TOPIC),
                broker.admin.add_partitions(OFFSETS_TOPIC, 9),
                broker.admin.alter_topic_configs(OFFSETS_TOPIC, {"commit.protocol": "isr"}),
                broker.admin.alter_topic_configs(OFFSETS_TOPIC, {"cleanup.policy": "delete"}),
                broker.admin.create_topic(NewTopic("__mine")),
            )
            for refusal in refused:
                with pytest.raises(InvalidRequest):
                    await refusal

    play(story)


def test_brokers_that_make_the_topic_at_once_make_one() -> None:
    async def story(three: ThreeBrokers) -> None:
        for request in (DescribeGroup(group="g"), DeleteGroup(group="g")):
            with pytest.raises(UnknownGroup):
                await three.brokers[1].groups.ask(request, deadline_s=soon())
        assert await three.brokers[1].groups.list_groups(deadline_s=soon()) == []
        assert OFFSETS_TOPIC not in three.brokers[1].image.topics, "nothing had to be kept"
        answers = await asyncio.gather(*(commit(three, node, node) for node in NODES for _ in range(3)))
        assert [answer.verdicts[0].code for answer in answers] == [0] * 9
        ids = [three.brokers[node].topic(OFFSETS_TOPIC).topic_id for node in NODES]
        assert ids == [ids[0]] * 3

    play(story)


def test_an_operator_sets_offsets_and_deletes_groups() -> None:
    async def story(three: ThreeBrokers) -> None:
        offsets = SetOffsets(group="g", offsets=(CommittedOffset("t", 0, 7),))
        await three.brokers[1].groups.ask(offsets, deadline_s=soon())
        assert [await committed(three, node) for node in NODES] == [7, 7, 7]
        await three.brokers[2].groups.ask(DeleteGroup(group="g"), deadline_s=soon())
        with pytest.raises(TidelogError) as refused:
            await three.brokers[3].groups.ask(DescribeGroup(group="g"), deadline_s=soon())
        assert isinstance(refused.value, UnknownGroup)

    play(story)
