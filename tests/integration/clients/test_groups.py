"""Consumers that share topics, on a real broker in this process: who reads what, from where, and who is told when.

Only members that are to be expelled have short sessions. Nothing waits for luck: every wait is for what is to become
true.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.integration.clients.conftest import hold_back_heartbeats
from tests.integration.http.conftest import Site
from tidelog.consumer import (
    CommitFailed,
    Consumer,
    ConsumerRebalanceListener,
    GroupNeeded,
    OffsetAndMetadata,
    PollIntervalExceeded,
    TopicPartition,
)
from tidelog.model.errors import GroupNotEmpty, InvalidRequest, UnsupportedAssignor
from tidelog.model.groups import DescribeGroup, GroupDescription
from tidelog.producer import Producer
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.environment import SimRunner
from tidelog.transport.errors import ClientClosed

SESSION_MS = 30_000
SHORT_SESSION_MS = 400
SETTINGS = {"group.min.session.timeout.ms": 100}
T0, T1, T2, T3 = (TopicPartition("t", number) for number in range(4))
WAIT_S = 20.0


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """One broker, with topic `t` of four partitions."""
    made = Site(SimDisk(), SimRunner(random.Random(0), mean_s=0.0002), lingering_s=0.05)
    await made.start(SETTINGS)
    await made.topic(partitions=4)
    yield made
    await made.stop()


def url(site: Site) -> str:
    return f"http://127.0.0.1:{site.address[1]}"


def consumer(site: Site, *topics: str, **options: Any) -> Consumer:
    given: dict[str, Any] = {
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "fetch_max_wait_ms": 50,
        "session_timeout_ms": SESSION_MS,
    }
    return Consumer(*topics, bootstrap_servers=url(site), **given | options)


async def produce(site: Site, *values: bytes, topic: str = "t", partitions: int = 4) -> None:
    """One after the other to all partitions in turn."""
    async with Producer(url(site)) as producer:
        for number, value in enumerate(values):
            await producer.send(topic, value, partition=number % partitions)


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


class Readers:
    """Consumers that are asked for records in turn; and what they got, by consumer."""

    def __init__(self, *consumers: Consumer) -> None:
        self.consumers = list(consumers)
        self.values: dict[Consumer, list[bytes | None]] = {consumer: [] for consumer in consumers}

    def add(self, consumer: Consumer) -> None:
        self.consumers.append(consumer)
        self.values.setdefault(consumer, [])

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                for consumer in self.consumers:
                    for records in (await consumer.getmany(timeout_ms=2)).values():
                        self.values[consumer] += [record.value for record in records]

    async def until_shared(self, *shares: int) -> None:
        """Until as many partitions are assigned to each, and no partition to two."""
        await self.until(lambda: self.shares() == sorted(shares))
        self.check_disjoint()

    def shares(self) -> list[int]:
        return sorted(len(consumer.assignment()) for consumer in self.consumers)

    def check_disjoint(self) -> None:
        owned = Counter(at for consumer in self.consumers for at in consumer.assignment())
        assert all(count == 1 for count in owned.values()), owned

    @property
    def all_values(self) -> list[bytes | None]:
        return [value for values in self.values.values() for value in values]

    async def until_read(self, count: int) -> None:
        await self.until(lambda: len(set(self.all_values)) >= count)


async def described(site: Site) -> GroupDescription:
    deadline_s = asyncio.get_running_loop().time() + WAIT_S
    return await site.broker.groups.ask(DescribeGroup(group="g"), deadline_s=deadline_s)


async def until_members(site: Site, count: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while len((await described(site)).members) != count:
            await asyncio.sleep(0.01)


def stop_heartbeats(consumer: Consumer) -> None:
    assert consumer._group is not None
    task = consumer._group._member._task
    assert task is not None
    task.cancel()


async def die(consumer: Consumer) -> None:
    """As if its process were killed: it says nothing any more, and does not leave."""
    stop_heartbeats(consumer)
    group = consumer._group
    assert group is not None
    if group._auto_commit is not None:
        group._auto_commit.cancel()
    await consumer._fetcher.close()
    await consumer._session.close()


class Told(ConsumerRebalanceListener):
    """What the listener was told, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[str, list[TopicPartition]]] = []

    def on_partitions_assigned(self, assigned: Sequence[TopicPartition]) -> None:
        self.events.append(("assigned", list(assigned)))

    async def on_partitions_revoked(self, revoked: Sequence[TopicPartition]) -> None:
        await asyncio.sleep(0)
        self.events.append(("revoked", list(revoked)))

    def on_partitions_lost(self, lost: Sequence[TopicPartition]) -> None:
        self.events.append(("lost", list(lost)))


# -- sharing ---------------------------------------------------------------------------------------------------------


async def test_three_share_and_everything_is_read_once_while_they_come_and_go(site: Site) -> None:
    async with consumer(site, "t") as one, AsyncExitStack() as later:
        readers = Readers(one)
        await produce(site, *numbered(40))
        await readers.until_shared(4)
        readers.add(await later.enter_async_context(consumer(site, "t")))
        await readers.until_shared(2, 2)
        await produce(site, *numbered(40, 40))
        async with consumer(site, "t") as three:
            readers.add(three)
            await readers.until_shared(1, 1, 2)
            await readers.until_read(80)
            readers.consumers.remove(three)
            await three.commit()
        await readers.until_shared(2, 2)
        await produce(site, *numbered(40, 80))
        await readers.until_read(120)
        assert sorted(readers.all_values, key=str) == sorted(numbered(120), key=str), "nothing came twice"


async def test_who_dies_is_followed_by_others_who_begin_at_the_last_commit(site: Site) -> None:
    async with consumer(site, "t") as one:
        two = consumer(site, "t", enable_auto_commit=False, session_timeout_ms=SHORT_SESSION_MS)
        await two.start()
        readers = Readers(one, two)
        await readers.until_shared(2, 2)
        await produce(site, *numbered(8))
        await readers.until_read(8)
        await two.commit()
        await produce(site, *numbered(8, 8))
        await readers.until_read(16)
        of_two = set(two.assignment())
        await die(two)
        readers.consumers.remove(two)
        await readers.until_shared(4)
        again = set(readers.values[two][-4:])
        await readers.until(lambda: again <= set(readers.values[one]))
        counts = Counter(readers.all_values)
        assert {value for value, count in counts.items() if count > 1} == again
        assert of_two <= set(one.assignment())


async def test_who_cannot_be_heard_hands_out_nothing_is_told_and_joins_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its heartbeats are held back. By the time that the other one has its partitions, it must have stopped."""
    async with consumer(site, "t") as one:
        two, told = consumer(site, session_timeout_ms=SHORT_SESSION_MS), Told()
        two.subscribe(["t"], listener=told)
        await two.start()
        readers = Readers(one, two)
        await readers.until_shared(2, 2)
        had = two.assignment()
        is_connected = hold_back_heartbeats(monkeypatch, two, "t")
        await until_members(site, 1)
        await produce(site, *numbered(8))
        readers.consumers.remove(two)
        await readers.until_shared(4)
        assert await two.getmany(timeout_ms=0) == {}, "though it knows of nothing, and could fetch"
        assert two.assignment() == had
        is_connected.set()
        readers.add(two)
        await readers.until_shared(2, 2)
        assert ("lost", had) in told.events
        await two.stop()


async def test_commits_of_who_was_expelled_are_refused(site: Site) -> None:
    async with consumer(site, "t", enable_auto_commit=False, session_timeout_ms=SHORT_SESSION_MS) as zombie:
        readers = Readers(zombie)
        await produce(site, *numbered(8))
        await readers.until_read(8)
        stop_heartbeats(zombie)
        await until_members(site, 0)
        with pytest.raises(CommitFailed, match=r"t-0: .*has no member") as failed:
            await zombie.commit()
        assert set(failed.value.refused) == {T0, T1, T2, T3}
        assert await zombie.committed(T0) is None


async def test_a_commit_for_somebody_elses_partition_is_refused_and_the_others_are_kept(site: Site) -> None:
    async with consumer(site, "t", enable_auto_commit=False) as one, consumer(site, "t") as two:
        await Readers(one, two).until_shared(2, 2)
        own, others = one.assignment()[0], two.assignment()[0]
        with pytest.raises(CommitFailed, match=str(others)) as failed:
            await one.commit({own: 3, others: 3})
        assert set(failed.value.refused) == {others}
        assert await one.committed(own) == 3
        assert await one.committed(others) is None


# -- committed offsets ------------------------------------------------------------------------------------------------


async def test_a_group_goes_on_where_it_was(site: Site) -> None:
    await produce(site, *numbered(8))
    async with consumer(site, "t", enable_auto_commit=False) as first:
        readers = Readers(first)
        await readers.until_read(8)
        await first.commit({T0: 1, T1: OffsetAndMetadata(2, "half"), T2: 2, T3: 2})
        assert await first.committed(T1, metadata=True) == OffsetAndMetadata(2, "half")
        assert await first.committed(TopicPartition("t", 9)) is None
        with pytest.raises(InvalidRequest, match="not between"):
            await first.commit({T0: -1})
    async with consumer(site, "t") as second:
        readers = Readers(second)
        await readers.until_read(1)
        assert readers.all_values == [b"4"]
        assert await second.position(T1) == 2


async def test_what_is_in_hand_is_not_committed_by_itself(site: Site) -> None:
    await produce(site, *numbered(6), partitions=1)
    async with consumer(site, "t") as first:
        async for record in first:
            if record.offset == 3:
                break
    async with consumer(site, "t") as second:
        assert (await second.getone()).offset == 3
        assert (await second.getone()).offset == 4
        await second.commit()
    async with consumer(site, "t", auto_commit_interval_ms=1) as third:
        assert (await third.getone()).offset == 5
        assert await third.committed(T0) == 5
        assert await third.getmany(timeout_ms=0) == {}
        async with asyncio.timeout(WAIT_S):
            while await third.committed(T0) != 6:
                await asyncio.sleep(0.01)


async def test_a_batch_in_hand_is_not_committed_by_itself(site: Site) -> None:
    for number in range(3):
        await produce(site, *numbered(2, start=2 * number), partitions=1)
    async with asyncio.timeout(WAIT_S):
        async with consumer(site, "t") as first:
            async for batch in first.batches():
                if batch.values == [b"2", b"3"]:
                    break
        async with consumer(site, "t", enable_auto_commit=False) as second:
            assert (await second.getbatch()).values == [b"2", b"3"]
            await second.commit()
            assert await second.committed(T0) == 4
        async with consumer(site, "t", auto_commit_interval_ms=1) as third:
            assert (await third.getbatch()).values == [b"4", b"5"]
            await asyncio.sleep(0.01)
            assert await third.committed(T0) == 4
            assert await third.getmany(timeout_ms=0) == {}
            while await third.committed(T0) != 6:
                await asyncio.sleep(0.01)


async def test_without_a_committed_offset_and_without_a_policy_the_program_has_to_seek(site: Site) -> None:
    class Seeker(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: Sequence[TopicPartition]) -> None:
            for partition in assigned:
                reader.seek(partition, 1)

    await produce(site, *numbered(8))
    async with consumer(site, "t", auto_offset_reset="none") as helpless:
        with pytest.raises(InvalidRequest, match="`seek` first"):
            await Readers(helpless).until_read(1)
    async with consumer(site, auto_offset_reset="none") as reader:
        reader.subscribe(["t"], listener=Seeker())
        readers = Readers(reader)
        await readers.until_read(4)
        assert sorted(readers.all_values, key=str) == numbered(4, 4)
        assert reader.lag() == dict.fromkeys((T0, T1, T2, T3), 0)


async def test_assigned_partitions_have_the_groups_offsets_without_a_member(site: Site) -> None:
    await produce(site, *numbered(12))
    async with consumer(site) as simple:
        simple.assign([T0, T1])
        simple.seek(T1, 2)
        assert await simple.position(T0) == 0
        readers = Readers(simple)
        await readers.until_read(4)
        assert set(readers.all_values) == {b"0", b"4", b"8", b"9"}
        await simple.commit({T0: 2})
        assert (await described(site)).members == ()
        with pytest.raises(InvalidRequest, match="unsubscribe"):
            simple.subscribe(["t"])
        simple.assign([T0])
        assert await simple.position(T0) == 2
        async with consumer(site, "t") as member:
            await Readers(member).until_shared(4)
            with pytest.raises(GroupNotEmpty):
                await simple.commit({T0: 0})
            with pytest.raises(InvalidRequest, match="unsubscribe"):
                member.assign([T0])
            await member.unsubscribe()
            assert member.subscription() == frozenset()
            assert (await described(site)).members == ()
            member.assign([T0])
            assert await member.position(T0) == 2


# -- listeners and subscriptions --------------------------------------------------------------------------------------


async def test_a_listener_commits_what_it_gives_up_and_its_successor_begins_there(site: Site) -> None:
    class Committing(Told):
        async def on_partitions_revoked(self, revoked: Sequence[TopicPartition]) -> None:
            await one.commit()
            await super().on_partitions_revoked(revoked)

    told, told_two = Committing(), Told()
    await produce(site, *numbered(40))
    async with consumer(site, enable_auto_commit=False) as one, consumer(site, enable_auto_commit=False) as two:
        one.subscribe(["t"], listener=told)
        readers = Readers(one)
        await readers.until_read(40)
        two.subscribe(["t"], listener=told_two)
        readers.add(two)
        await readers.until_shared(2, 2)
        moved = two.assignment()
        assert told.events == [("assigned", [T0, T1, T2, T3]), ("revoked", moved)]
        assert told_two.events == [("assigned", moved)]
        assert [await two.position(at) for at in moved] == [10, 10]
        await two.unsubscribe()
        assert told_two.events[1:] == [("revoked", moved)]
        assert two.assignment() == []
        readers.consumers.remove(two)
        await readers.until_shared(4)
        assert told.events[2:] == [("assigned", moved)], "what stays was never taken away"
        assert sorted(readers.all_values, key=str) == sorted(numbered(40), key=str)


async def test_what_a_listener_raises_comes_out_of_the_call(site: Site) -> None:
    class Failing(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: Sequence[TopicPartition]) -> None:
            raise RuntimeError("no room")

    async with consumer(site) as reader:
        reader.subscribe(["t"], listener=Failing())
        with pytest.raises(RuntimeError, match="no room"):
            await Readers(reader).until_shared(4)


async def test_subscriptions_change_and_patterns_find_topics_that_come_later(site: Site) -> None:
    async with consumer(site, "later", session_timeout_ms=SHORT_SESSION_MS) as reader:  # hears of topics this often
        readers = Readers(reader)
        await readers.until(lambda: reader._group is not None and reader._group._member.membership.member_epoch > 0)
        assert (reader.assignment(), reader.subscription()) == ([], frozenset({"later"}))
        await site.topic("later", partitions=1)
        await readers.until_shared(1)
        await produce(site, b"x", topic="later", partitions=1)
        await readers.until_read(1)
        reader.subscribe(["t"])
        await readers.until(lambda: reader.assignment() == [T0, T1, T2, T3])
        reader.subscribe(pattern="la.*")
        await readers.until(lambda: reader.assignment() == [TopicPartition("later", 0)])
        await site.topic("last", partitions=1)
        await readers.until_shared(2)
        assert reader.subscription() == frozenset({"later", "last"})
        await site.broker.admin.delete_topic("last")
        await readers.until_shared(1)


async def test_a_static_member_comes_back_to_its_partitions_and_nobody_else_notices(site: Site) -> None:
    told = Told()
    options: dict[str, Any] = {"group_instance_id": "desk-2"}
    async with consumer(site) as one:
        one.subscribe(["t"], listener=told)
        async with consumer(site, "t", **options) as two:
            readers = Readers(one, two)
            await readers.until_shared(2, 2)
            before, events = two.assignment(), list(told.events)
        async with consumer(site, "t", **options) as again:
            readers = Readers(one, again)
            await readers.until_shared(2, 2)
            assert again.assignment() == before
            assert told.events == events


# -- being slow, and being wrong --------------------------------------------------------------------------------------


async def test_who_asks_for_nothing_leaves_is_told_once_and_joins_again(site: Site) -> None:
    told = Told()
    async with consumer(site, max_poll_interval_ms=150) as slow:
        slow.subscribe(["t"], listener=told)
        readers = Readers(slow)
        await readers.until_shared(4)
        await until_members(site, 0)
        with pytest.raises(PollIntervalExceeded, match="max_poll_interval_ms"):
            await slow.getmany()
        assert told.events == [("assigned", [T0, T1, T2, T3]), ("lost", [T0, T1, T2, T3])]
        assert slow.assignment() == []
        await readers.until_shared(4)


async def test_a_call_that_waits_for_long_is_no_silence(site: Site) -> None:
    told = Told()
    async with consumer(site, max_poll_interval_ms=100) as patient:
        patient.subscribe(["t"], listener=told)
        await Readers(patient).until_shared(4)
        assert patient._group is not None
        member = patient._group._member.membership.member_id
        assert await patient.getmany(timeout_ms=300) == {}
        assert patient._group._member.membership.member_id == member
        assert told.events == [("assigned", [T0, T1, T2, T3])]


async def test_errors_that_last_come_out_of_the_call_and_the_next_one_tries_again(site: Site) -> None:
    async with consumer(site, "t", partition_assignment="unfair") as reader:
        for _ in range(2):
            with pytest.raises(UnsupportedAssignor, match="unfair"):
                await Readers(reader).until_shared(4)


@pytest.mark.parametrize(
    "options",
    [
        {"group_id": "x" * 256},
        {"group_instance_id": ""},
        {"session_timeout_ms": 0},
        {"max_poll_interval_ms": -1},
        {"auto_commit_interval_ms": 0},
    ],
)
def test_settings_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        Consumer("t", **{"group_id": "g"} | options)


async def test_what_needs_a_group_says_so() -> None:
    without, within = Consumer(), Consumer(group_id="g")
    with pytest.raises(GroupNeeded, match="`group_id`"):
        await without.commit()
    with pytest.raises(GroupNeeded, match="`group_id`"):
        await without.committed(T0)
    with pytest.raises(GroupNeeded, match="`group_id`"):
        without.subscribe(["t"])
    topics: Sequence[str]
    for topics in ("t", (), ("a/b",)):
        with pytest.raises(InvalidRequest):
            within.subscribe(topics)


async def test_closing_ends_a_call_that_waits_for_the_group(site: Site) -> None:
    class Waiting(ConsumerRebalanceListener):
        async def on_partitions_assigned(self, assigned: Sequence[TopicPartition]) -> None:
            is_told.set()
            await asyncio.Event().wait()

    is_told = asyncio.Event()
    reader = consumer(site)
    reader.subscribe(["t"], listener=Waiting())
    await reader.start()
    asked = asyncio.create_task(reader.getone())
    async with asyncio.timeout(WAIT_S):
        await is_told.wait()
        await reader.stop()
        with pytest.raises(ClientClosed):
            await asked
