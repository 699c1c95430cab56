"""Consumers whose `run` processes several records of a partition at a time, on a real broker in this process.

A handler's records wait at gates that the test opens, so what overtakes what is decided here, and not by time.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from tests.integration.clients.conftest import hold_back_heartbeats
from tests.integration.http.conftest import Site
from tidelog.admin import AdminClient
from tidelog.consumer import (
    Consumer,
    ConsumerRebalanceListener,
    ConsumerRecord,
    OffsetAndMetadata,
    TopicPartition,
    parallel_run,
)
from tidelog.consumer.intervals import ProcessedOffsets, decode_processed
from tidelog.consumer.partition_dispatcher import PartitionDispatcher
from tidelog.model.errors import InvalidRequest, OffsetOutOfRange
from tidelog.model.groups import DescribeGroup
from tidelog.producer import Producer
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.environment import SimRunner

SETTINGS = {"group.min.session.timeout.ms": 100}
WAIT_S = 20.0
T0, T1, T2, T3 = (TopicPartition("t", number) for number in range(4))


@asynccontextmanager
async def broker(partitions: int, **settings: object) -> AsyncIterator[Site]:
    """Starts one broker with topic `t` of so many partitions."""
    site = Site(SimDisk(), SimRunner(random.Random(0), mean_s=0.0002), lingering_s=0.05)
    await site.start(SETTINGS | settings)
    await site.topic(partitions=partitions)
    yield site
    await site.stop()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """A broker with one partition, `T0`."""
    async with broker(1) as site:
        yield site


@pytest.fixture
async def four() -> AsyncIterator[Site]:
    async with broker(4) as site:
        yield site


def url(site: Site) -> str:
    return f"http://127.0.0.1:{site.address[1]}"


def consumer(site: Site, *topics: str, **options: Any) -> Consumer:
    given: dict[str, Any] = {
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "fetch_max_wait_ms": 50,
        "session_timeout_ms": 5_000,
        "order": "key",
    }
    return Consumer(*topics, bootstrap_servers=url(site), **given | options)


async def produce(site: Site, values: Iterable[int], keys: int = 10, partitions: int = 1) -> None:
    """Produces the numbers to all partitions in turn; the key is the number modulo `keys`, or None if `keys` is 0."""
    async with Producer(url(site)) as producer:
        for value in values:
            key = b"%d" % (value % keys) if keys else None
            await producer.send("t", b"%d" % value, key=key, partition=value % partitions)


class Handler:
    """Counts the records that it is given; those behind a gate stay until the gate is opened."""

    def __init__(self, *held: int) -> None:
        self.gates = {value: asyncio.Event() for value in held}
        self.started: list[int] = []
        self.finished: list[int] = []
        self._changed = asyncio.Event()

    async def __call__(self, record: ConsumerRecord) -> None:
        assert record.value is not None
        value = int(record.value)
        self.started.append(value)
        self._changed.set()
        if value in self.gates:
            await self.gates[value].wait()
        self.finished.append(value)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def until_finished(self, count: int) -> None:
        await self.until(lambda: len(self.finished) >= count)

    def open(self, *values: int) -> None:
        for value in values:
            self.gates[value].set()


@asynccontextmanager
async def running(consumer: Consumer, handler: Handler, **options: Any) -> AsyncIterator[asyncio.Task[None]]:
    """Runs a consumer, and stops it."""
    async with consumer:
        task = asyncio.create_task(consumer.run(handler, **options))
        try:
            yield task
            await consumer.stop()
            async with asyncio.timeout(WAIT_S):
                await task
        finally:
            task.cancel()


async def committed(site: Site, partition: TopicPartition = T0) -> ProcessedOffsets:
    async with Consumer(bootstrap_servers=url(site), group_id="g") as reader:
        found = await reader.committed(partition, metadata=True)
    assert isinstance(found, OffsetAndMetadata)
    return decode_processed(*found)


async def until(condition: Callable[[], bool]) -> None:
    """For what tells nobody when it comes true."""
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.01)


# -- what overtakes what ----------------------------------------------------------------------------------------------


async def test_one_slow_record_holds_up_its_key_alone_and_a_restart_goes_on_with_what_is_left(site: Site) -> None:
    await produce(site, range(100))
    slow = Handler(0)
    async with running(consumer(site, "t"), slow, drain_timeout_ms=0):
        await slow.until_finished(90)
        assert sorted(slow.started) == [0, *(value for value in range(100) if value % 10)]
    found = await committed(site)
    assert (found.low, found.intervals[0], len(found.intervals)) == (0, (1, 10), 10)
    handler = Handler()
    async with running(consumer(site, "t"), handler):
        await handler.until_finished(10)
        assert handler.finished == list(range(0, 100, 10)), "its key's records, in their order"
    assert ((await committed(site)).low, handler.started) == (100, handler.finished)


async def test_total_order_processes_one_record_of_a_partition_at_a_time(four: Site) -> None:
    await produce(four, range(40), partitions=4)
    handler = Handler(0, 9)
    async with running(consumer(four, "t", order="total"), handler):
        await handler.until_finished(20 + 2)
        assert sorted(handler.started) == sorted([0, 1, 5, 9, *(v for v in range(40) if v % 4 > 1)])
        handler.open(0, 9)
        await handler.until_finished(40)
        for partition in range(4):
            of_partition = [value for value in handler.finished if value % 4 == partition]
            assert of_partition == sorted(of_partition)
    assert (await committed(four)).encode() == ""


@pytest.mark.parametrize(("order", "keys"), [("none", 1), ("key", 0)])
async def test_records_that_conflict_with_none_all_overtake_a_slow_one(site: Site, order: str, keys: int) -> None:
    await produce(site, range(20), keys)
    handler = Handler(0, 7)
    async with running(consumer(site, "t", order=order), handler):
        await handler.until_finished(18)
        handler.open(0, 7)
    assert (await committed(site)).low == 20
    assert sorted(handler.started) == list(range(20))


async def test_no_more_records_than_workers_are_processed_at_a_time(site: Site) -> None:
    await produce(site, range(10))
    handler = Handler(0, 1, 2)
    async with running(consumer(site, "t"), handler, workers=3):
        await handler.until(lambda: len(handler.started) == 3)
        handler.open(1)
        await handler.until_finished(8)
        assert sorted(handler.finished) == [1, 3, 4, 5, 6, 7, 8, 9]
        handler.open(0, 2)


async def test_without_a_group_a_run_reads_in_total_order(site: Site) -> None:
    await produce(site, range(10))
    handler = Handler(4)
    reader = consumer(site, "t", group_id=None, order="total")
    async with running(reader, handler, drain_timeout_ms=0) as task:
        await handler.until_finished(4)
        await reader.stop()
        await task
    assert handler.started == [0, 1, 2, 3, 4]


# -- commits ----------------------------------------------------------------------------------------------------------


async def test_what_is_processed_is_committed_as_it_goes_and_by_hand(site: Site) -> None:
    await produce(site, range(10))
    handler = Handler(0, 5)
    reader = consumer(site, "t", auto_commit_interval_ms=1)
    async with running(reader, handler):
        await handler.until_finished(8)
        async with asyncio.timeout(WAIT_S):
            while await reader.committed(T0) is None or (await committed(site)).intervals != [(1, 5), (6, 10)]:
                await asyncio.sleep(0.01)
        assert reader.lag() == {T0: 10}
        handler.open(0, 5)
    await produce(site, range(10, 20))
    by_hand = Handler(10, 12)
    reader = consumer(site, "t", enable_auto_commit=False)
    async with running(reader, by_hand):
        await by_hand.until_finished(8)
        await reader.commit()
        assert (await committed(site)).intervals == [(11, 12), (13, 20)]
        by_hand.open(10, 12)
        await by_hand.until_finished(10)
    assert (await committed(site)).low == 10, "nobody has committed the rest"


async def test_plain_members_of_the_group_go_on_at_the_low_offset(site: Site) -> None:
    await produce(site, range(10))
    slow = Handler(2)
    async with running(consumer(site, "t"), slow, drain_timeout_ms=0):
        await slow.until_finished(9)
    async with consumer(site, "t", order="total") as plain, asyncio.timeout(WAIT_S):
        while await plain.getmany(timeout_ms=5) == {}:
            pass
        assert (await committed(site)).intervals == [(3, 10)], "who has read nothing commits nothing"
        await plain.seek_to_beginning()
        assert [(await plain.getone()).offset for _ in range(5)] == [0, 1, 2, 3, 4]
        await plain.commit()
    handler = Handler()
    async with running(consumer(site, "t"), handler):
        await handler.until_finished(5)
    assert handler.finished == [5, 6, 7, 8, 9], "a plain member's commit says nothing of what is above it"


async def test_the_metadata_of_other_programs_is_left_alone_until_there_is_more_to_say(site: Site) -> None:
    await produce(site, range(5))
    async with consumer(site, "t", order="total", enable_auto_commit=False) as plain, asyncio.timeout(WAIT_S):
        await plain.getone()
        await plain.commit({T0: OffsetAndMetadata(2, "half")})
    slow = Handler(2)
    async with running(consumer(site, "t"), slow, workers=1, drain_timeout_ms=0):
        await slow.until(lambda: slow.started == [2])
    async with Consumer(bootstrap_servers=url(site), group_id="g") as reader:
        found = await reader.committed(T0, metadata=True)
    assert found == OffsetAndMetadata(2, "half")
    handler = Handler(2)
    async with running(consumer(site, "t"), handler, drain_timeout_ms=0):
        await handler.until_finished(2)
    assert (await committed(site)).intervals == [(3, 5)]


async def test_brokers_that_take_no_long_metadata_get_low_offsets(caplog: pytest.LogCaptureFixture) -> None:
    async with broker(1, **{"offset.metadata.max.bytes": 20}) as site:
        await produce(site, range(10))
        slow = Handler(1)
        async with running(consumer(site, "t"), slow, drain_timeout_ms=0):
            await slow.until_finished(9)
        found = await committed(site)
        assert (found.low, found.intervals) == (1, [])
        assert "offset.metadata.max.bytes" in caplog.text


# -- rebalances -------------------------------------------------------------------------------------------------------


class Sharing:
    """Two consumers of four partitions: the second joins while records of the first are at their gates."""

    def __init__(self, site: Site, *held: int, **options: Any) -> None:
        self.site = site
        self.handler, self.other_handler = Handler(*held), Handler()
        self.consumer, self.other = consumer(site, "t"), consumer(site, "t", **options)
        self.given_up: list[TopicPartition] = []

    async def until_waiting(self) -> list[TopicPartition]:
        """Returns the partitions that the first must give up, when it knows."""
        assert self.consumer._group is not None
        membership = self.consumer._group._member.membership
        await until(lambda: bool(membership.to_give_up))
        return membership.to_give_up


async def test_a_partition_is_given_up_when_its_records_are_finished_and_others_go_on(four: Site) -> None:
    await produce(four, range(40), partitions=4)
    it = Sharing(four, 0, 1, 2, 3)
    async with running(it.consumer, it.handler):
        await it.handler.until_finished(40 - 16 - 2)  # 0 to 3 wait, and those of their keys behind them
        async with running(it.other, it.other_handler):
            going = [partition.partition for partition in await it.until_waiting()]
            await produce(four, range(40, 44), keys=100, partitions=4)
            staying = [number for number in range(4) if number not in going]
            await it.handler.until(lambda: {40 + number for number in staying} <= set(it.handler.finished))
            it.handler.open(*staying)
            await it.handler.until(lambda: set(staying) <= set(it.handler.finished))
            assert it.other.assignment() == []
            it.handler.open(*going)
            await it.other_handler.until(lambda: len({*it.handler.finished, *it.other_handler.finished}) == 44)
            assert sorted(at.partition for at in it.other.assignment()) == going
    counts = Counter(it.handler.finished + it.other_handler.finished)
    assert counts == Counter(range(44)), "nothing came twice"


async def test_a_record_that_takes_too_long_does_not_hold_up_its_partition(
    four: Site, caplog: pytest.LogCaptureFixture
) -> None:
    await produce(four, range(8), keys=100, partitions=4)
    it = Sharing(four, 0, 1, 2, 3)
    async with running(it.consumer, it.handler, drain_timeout_ms=20):
        await it.handler.until_finished(4)
        async with running(it.other, it.other_handler):
            going = [partition.partition for partition in await it.until_waiting()]
            await it.other_handler.until_finished(2)
            assert sorted(it.other_handler.finished) == going, "those that were finished are committed"
            assert "given up" in caplog.text
            it.handler.open(0, 1, 2, 3)
            await it.handler.until_finished(8)
    for partition in (T0, T1, T2, T3):
        assert (await committed(four, partition)).low == 2


async def test_what_is_lost_is_not_processed_on_and_not_committed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    await produce(site, range(4))
    handler, successor = Handler(0, 1), Handler(1, 2)
    lost = consumer(site, "t", session_timeout_ms=300)
    async with running(lost, handler, workers=2):
        await handler.until(lambda: len(handler.started) == 2)
        is_connected = hold_back_heartbeats(monkeypatch, lost, "t")
        async with asyncio.timeout(WAIT_S):
            while (await site.broker.groups.ask(DescribeGroup(group="g"), deadline_s=now_s() + WAIT_S)).members:
                await asyncio.sleep(0.01)
        async with running(consumer(site, "t"), successor, drain_timeout_ms=0):
            await successor.until(lambda: sorted(successor.started) == [0, 1, 2, 3])
            handler.open(0, 1)
            await handler.until_finished(2)
            is_connected.set()
            await until(lambda: lost._group is not None and lost._group._member.membership.member_epoch > 0)
            assert handler.started == [0, 1]
        await handler.until_finished(4)
        assert sorted(handler.finished[2:]) == [1, 2], "what the successor has not processed; whatever was, in vain"


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def test_listeners_seek_and_partitions_by_hand_have_their_intervals(site: Site) -> None:
    class Seeking(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: Sequence[TopicPartition]) -> None:
            reader.seek(T0, 0)

    await produce(site, range(10))
    slow = Handler(2)
    async with running(consumer(site, "t"), slow, drain_timeout_ms=0):
        await slow.until_finished(9)
    by_hand = consumer(site)
    by_hand.assign([T0])
    again = Handler(2)
    async with running(by_hand, again, drain_timeout_ms=0):
        await again.until(lambda: again.started == [2])
        await by_hand.commit()
    reader = consumer(site)
    reader.subscribe(["t"], listener=Seeking())
    handler = Handler()
    async with running(reader, handler):
        await handler.until_finished(10)
        assert sorted(handler.finished) == list(range(10)), "a seek means everything from there on"


# -- seeks, pauses and retention --------------------------------------------------------------------------------------


async def test_a_seek_begins_anew_and_a_pause_holds_back(site: Site) -> None:
    await produce(site, range(10))
    handler = Handler(0, 9)
    reader = consumer(site, "t")
    async with running(reader, handler):
        await handler.until_finished(8)
        reader.seek(T0, 1)
        await handler.until_finished(16)
        assert handler.started.count(9) == 1, "its key is busy"
        handler.open(9, 0)
        await handler.until(lambda: handler.started.count(9) == 2)
        assert handler.started.count(0) == 1
        await handler.until_finished(19)
        reader.pause(T0)
        await produce(site, [10])
        await until(lambda: reader.highwater(T0) == 11 or bool(reader.paused()))
        reader.resume(T0)
        await handler.until_finished(20)
        await reader.seek_to_beginning(T0)
        await handler.until_finished(31)
    assert (await committed(site)).low == 11


async def test_intervals_hold_when_the_log_begins_above_the_low_offset(site: Site) -> None:
    await produce(site, range(20))
    slow = Handler(2, 14)
    async with running(consumer(site, "t"), slow, drain_timeout_ms=0):
        await slow.until_finished(20 - 4 + 1)  # 12 waits behind 2
    async with AdminClient(url(site)) as admin:
        await admin.delete_records("t", 0, 10)
    handler = Handler(12)
    async with running(consumer(site, "t"), handler, drain_timeout_ms=0):
        await handler.until_finished(1)
        assert sorted(handler.started) == [12, 14]
    assert (await committed(site)).low == 12
    async with AdminClient(url(site)) as admin:
        await admin.delete_records("t", 0, 15)
    with pytest.raises(OffsetOutOfRange):
        async with consumer(site, "t", auto_offset_reset="none") as strict, asyncio.timeout(WAIT_S):
            await strict.run(handler)


async def test_without_a_position_the_run_says_so(site: Site) -> None:
    async with consumer(site, "t", auto_offset_reset="none") as helpless, asyncio.timeout(WAIT_S):
        with pytest.raises(InvalidRequest, match="`seek` first"):
            await helpless.run(Handler())


# -- bounds -----------------------------------------------------------------------------------------------------------


async def test_reading_stops_while_many_records_wait_for_a_key(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    bounded = partial(PartitionDispatcher, held_max=8)
    monkeypatch.setattr(parallel_run, "PartitionDispatcher", bounded)
    await produce(site, [0] * 20 + [1] * 4)
    handler = Handler(0)
    reader = consumer(site, "t")
    async with running(reader, handler):
        await until(lambda: reader.assignment() == [T0] and reader.highwater(T0) == 24 and bool(handler.started))
        assert await reader.position(T0) == 8
        assert reader.paused() == [], "which is the program's"
        handler.open(0)
        await handler.until_finished(24)


async def test_a_fetch_buffer_that_is_small_is_enough(site: Site) -> None:
    await produce(site, range(30))
    handler = Handler()
    async with running(consumer(site, "t", fetch_buffer_bytes=1), handler):
        await handler.until_finished(30)


# -- errors and misuse ------------------------------------------------------------------------------------------------


async def test_the_first_error_ends_the_run_and_its_record_comes_again(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(record: ConsumerRecord) -> None:
        if record.offset == 3:
            await handler.until(lambda: len(handler.started) == 9 and len(handler.finished) == 7)
            raise ValueError("no number")
        await handler(record)
        if record.offset == 5:
            raise ValueError("no number either")

    await produce(site, range(10))
    handler = Handler(4, 5)
    async with consumer(site, "t") as reader:
        task = asyncio.create_task(reader.run(fails))
        await until(lambda: reader._run is not None and reader._run._is_ending.is_set())
        handler.open(4, 5)
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(ValueError, match=r"no number$"):
                await task
        assert "no number either" in caplog.text
        found = await committed(site)
        assert (found.low, found.intervals) == (3, [(4, 5), (6, 10)])
        assert await reader.position(T0) == 3
        again = Handler()
        task = asyncio.create_task(reader.run(again))
        await again.until_finished(2)
        await reader.stop()
        await task
        assert sorted(again.finished) == [3, 5]


async def test_a_run_that_is_cancelled_cancels_its_handlers(site: Site) -> None:
    await produce(site, range(10))
    handler = Handler(0, 1)
    async with consumer(site, "t") as reader:
        task = asyncio.create_task(reader.run(handler))
        await handler.until_finished(8)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert reader._run is None
    assert (await committed(site)).intervals == [(2, 10)]


async def test_handlers_that_take_too_long_at_the_end_are_cancelled(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    await produce(site, range(3))
    handler = Handler(0)
    async with running(consumer(site, "t"), handler, drain_timeout_ms=10):
        await handler.until_finished(2)
    assert "1 records are not processed after 0.01 s" in caplog.text
    assert (await committed(site)).intervals == [(1, 3)]


async def test_a_handler_cannot_stop_its_consumer(site: Site) -> None:
    async def stops(_: ConsumerRecord) -> None:
        await reader.stop()

    await produce(site, [1])
    async with consumer(site, "t") as reader, asyncio.timeout(WAIT_S):
        with pytest.raises(InvalidRequest, match="another task"):
            await reader.run(stops)


async def test_misuse_is_said_to_be(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(InvalidRequest, match="order must be total, key or none"):
        consumer(site, order="keys")
    with pytest.raises(InvalidRequest, match='order="none" is for consumers in a group'):
        Consumer("t", order="none")
    handler = Handler()
    async with consumer(site, "t") as by_key:
        for call in (by_key.getone, by_key.getmany, by_key.getbatch, partial(anext, by_key)):
            with pytest.raises(InvalidRequest, match=r'order="key" hands out no records: give `run`'):
                await call()
        for options in ({"workers": 0}, {"workers": 257}, {"drain_timeout_ms": -1}):
            with pytest.raises(InvalidRequest, match="workers"):
                await by_key.run(handler, **options)
    reader = consumer(site, "t", order="total")
    async with running(reader, handler):
        await until(lambda: reader._run is not None)
        with pytest.raises(InvalidRequest, match="runs already"):
            await reader.run(handler)
        with pytest.raises(InvalidRequest, match="none are handed out"):
            await reader.getmany()
    assert caplog.get_records("call") == [] or max(r.levelno for r in caplog.get_records("call")) < logging.ERROR


# -- what it is worth -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("order", ["key", "total"])
@pytest.mark.timeout(600)
async def test_the_time_until_all_other_keys_are_processed(
    site: Site, order: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prints how long other keys of a partition take while one record of 10,000 takes 5 s: 1,000 keys, 16 workers."""

    others, are_done = 0, asyncio.Event()

    async def handle(record: ConsumerRecord) -> None:
        nonlocal others
        if record.offset == 100:
            await asyncio.sleep(5)
        others += record.key != b"100"
        if others == 9_990:
            are_done.set()

    async with Producer(url(site)) as producer:
        await producer.send_batch("t", [b""] * 10_000, keys=[b"%d" % (n % 1_000) for n in range(10_000)], partition=0)
    async with consumer(site, "t", order=order, session_timeout_ms=45_000) as reader:
        began_s = now_s()
        task = asyncio.create_task(reader.run(handle))
        async with asyncio.timeout(100 * WAIT_S):
            await are_done.wait()
        with capsys.disabled():
            sys.stdout.write(f'\norder="{order}": {now_s() - began_s:.2f} s until all other keys were processed\n')
        await reader.stop()
        await task
