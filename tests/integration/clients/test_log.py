"""The writer and the reader of a replicated log, on a real broker, for both commit protocols."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import pytest

from tests.integration.clients.conftest import read_all
from tests.integration.clients.log_story import Story, contend
from tests.integration.clients.losing_proxy import LosingProxy
from tidelog.admin import AdminClient
from tidelog.log import Entry, Reader, Writer, WriterFenced
from tidelog.log.entries import CLAIM
from tidelog.log.partition import LogPartition
from tidelog.model.batch_codec import encode_batch
from tidelog.model.errors import (
    InvalidRequest,
    OffsetOutOfRange,
    TooLarge,
    TotalOrderRequired,
    UnknownPartition,
    UnknownTopic,
)
from tidelog.model.ids import TopicPartition
from tidelog.model.records import Record
from tidelog.producer import Producer
from tidelog.testing import LocalCluster
from tidelog.transport.errors import ClientClosed, DeliveryUnknown, NoAnswer
from tidelog.transport.security import Security

pytestmark = pytest.mark.process


@pytest.fixture(params=["isr", "paxos"])
async def log(request: pytest.FixtureRequest, admin: AdminClient, topic_names: Iterator[str]) -> str:
    """A topic that is fit to hold a log."""
    name = next(topic_names)
    await create(admin, name, request.param)
    return name


async def create(admin: AdminClient, name: str, protocol: str = "isr") -> None:
    await admin.create_topic(name, partitions=1, configs={"retention.ms": "-1", "commit.protocol": protocol})


@pytest.fixture
async def writer(cluster: LocalCluster, log: str) -> AsyncIterator[Writer]:
    async with Writer(cluster.bootstrap, log, name="first") as writer:
        yield writer


@pytest.fixture
async def reader(cluster: LocalCluster, log: str) -> AsyncIterator[Reader]:
    async with Reader(cluster.bootstrap, log, timeout_ms=3000) as reader:
        yield reader


async def everything(reader: Reader) -> list[Entry]:
    return [entry async for entry in reader.read(await reader.beginning(), await reader.catchup())]


async def test_a_log_is_written_read_and_truncated(writer: Writer, reader: Reader) -> None:
    assert await everything(reader) == []
    one = await writer.append(b"one")
    two = await writer.append(b"two")
    assert writer.ending == await reader.ending() == await reader.catchup() == two + 1
    assert await everything(reader) == [Entry(one, b"one"), Entry(two, b"two")]
    assert [entry async for entry in reader.read(one, two)] == [Entry(one, b"one")]
    ending = await writer.truncate(two)
    assert (await reader.beginning(), await reader.ending()) == (two, ending)
    assert await everything(reader) == [Entry(two, b"two")]
    with pytest.raises(OffsetOutOfRange):
        await anext(reader.read(one, two))
    with pytest.raises(InvalidRequest, match=f"ends at {ending}"):
        await writer.truncate(ending + 1)
    three = await writer.append(b"three")
    assert three == ending
    await writer.truncate(writer.ending)
    assert await everything(reader) == []


async def test_entries_of_many_tasks_are_in_the_order_of_their_positions(writer: Writer, reader: Reader) -> None:
    data = [b"%d" % number for number in range(500)]
    positions = await asyncio.gather(*map(writer.append, data))
    assert await everything(reader) == [Entry(*pair) for pair in zip(positions, data, strict=True)]
    assert positions == sorted(positions)


async def test_who_starts_fences_who_wrote_before(
    cluster: LocalCluster, log: str, writer: Writer, reader: Reader
) -> None:
    await writer.append(b"a")
    async with Writer(cluster.bootstrap, log, name="second") as second:
        with pytest.raises(WriterFenced):
            await writer.append(b"too late")
        with pytest.raises(WriterFenced):
            await writer.truncate(1)
        await second.append(b"b")
        ending = await writer.start()
        with pytest.raises(WriterFenced):
            await second.append(b"too late, too")
        assert ending == writer.ending == await reader.catchup()
        await writer.append(b"c")
    assert [entry.data for entry in await everything(reader)] == [b"a", b"b", b"c"]
    claims = [
        record.headers for record in await read_all(cluster.bootstrap, TopicPartition(log, 0)) if record.value is None
    ]
    assert claims == [((CLAIM, name),) for name in (b"first", b"second", b"first")]


async def test_a_fenced_writer_stays_fenced_when_its_past_is_deleted(
    cluster: LocalCluster, log: str, writer: Writer, reader: Reader
) -> None:
    """Neither the claims nor what producers are remembered by are left in the log: positions are enough."""
    await writer.append(b"a")
    async with Writer(cluster.bootstrap, log) as second:
        await second.truncate(second.ending)
        await second.truncate(second.ending)
        with pytest.raises(WriterFenced):
            await writer.append(b"too late")
    assert await everything(reader) == []


async def test_writers_that_contend_make_one_history(cluster: LocalCluster, log: str) -> None:
    """Each claims and appends until it is fenced, again and again; what is read back is one term after the other."""
    story = Story()
    await asyncio.gather(*(contend(cluster.bootstrap, log, b"%d" % number, 5, story) for number in range(4)))
    await story.check(cluster.bootstrap, log)
    assert story.refused and story.acknowledged and not story.unknown


async def test_a_stray_producer_takes_the_log_away(
    cluster: LocalCluster, log: str, writer: Writer, reader: Reader
) -> None:
    async with Producer(cluster.bootstrap) as producer:
        await producer.send_and_wait(log, b"stray")
    with pytest.raises(WriterFenced):
        await writer.append(b"a")
    assert [entry.data for entry in await everything(reader)] == [b"stray"]


async def test_lost_answers_neither_lose_nor_repeat_an_entry(
    cluster: LocalCluster, proxy: LosingProxy, log: str, reader: Reader
) -> None:
    async with Writer(proxy.bootstrap, log) as writer:
        positions = []
        for number in range(6):
            proxy.answers_to_lose = number % 2
            positions.append(await writer.append(b"%d" % number))
        assert proxy.answers_lost == 3
    assert [entry.position for entry in await everything(reader)] == positions


async def test_an_unknown_outcome_is_told_and_settled_by_starting_again(
    own_cluster: LocalCluster, own_log: str
) -> None:
    async with Writer(own_cluster.bootstrap, own_log, timeout_ms=700, request_timeout_ms=200) as writer:
        await writer.append(b"a")
        own_cluster.pause()
        with pytest.raises(DeliveryUnknown):
            await writer.append(b"who knows")
        own_cluster.resume()
        with pytest.raises(ClientClosed, match="start the writer again"):
            await writer.append(b"b")
        ending = await _started(writer)
        async with Reader(own_cluster.bootstrap, own_log) as reader:
            before = [entry.data async for entry in reader.read(0, ending)]
            assert before in ([b"a"], [b"a", b"who knows"])
            position = await writer.append(b"b")
            assert [entry async for entry in reader.read(ending, position + 1)] == [Entry(position, b"b")]
            assert [entry.data for entry in await everything(reader)] == [*before, b"b"]


async def _started(writer: Writer) -> int:
    while True:
        try:
            return await writer.start()
        except DeliveryUnknown:
            continue


@pytest.fixture
async def own_log(own_cluster: LocalCluster, topic_names: Iterator[str]) -> str:
    name = next(topic_names)
    async with AdminClient(own_cluster.bootstrap) as admin:
        await create(admin, name)
    return name


async def test_bad_input_is_refused(cluster: LocalCluster, log: str, topic: str, writer: Writer) -> None:
    with pytest.raises(InvalidRequest, match="retention"):
        await Writer(cluster.bootstrap, topic).__aenter__()
    with pytest.raises(UnknownTopic):
        await Writer(cluster.bootstrap, "nowhere").__aenter__()
    with pytest.raises(UnknownPartition):
        await Reader(cluster.bootstrap, log, partition=1).__aenter__()
    with pytest.raises(InvalidRequest, match="255"):
        Writer(cluster.bootstrap, log, name="n" * 256)
    with pytest.raises(ClientClosed):
        await Writer(cluster.bootstrap, log).append(b"a")
    with pytest.raises(InvalidRequest, match="bytes, not str"):
        await writer.append("text")  # type: ignore[arg-type]  # on purpose
    with pytest.raises(TooLarge):
        await writer.append(bytes(2 << 20))
    assert await writer.append(b"fits") == writer.ending - 1


@pytest.mark.parametrize("order", ["key", "none"])
async def test_a_log_needs_total_order(
    cluster: LocalCluster, admin: AdminClient, topic_names: Iterator[str], order: str
) -> None:
    name = next(topic_names)
    configs = {"retention.ms": "-1", "commit.protocol": "paxos", "commit.order": order}
    await admin.create_topic(name, partitions=1, configs=configs)
    writer = Writer(cluster.bootstrap, name)
    try:
        with pytest.raises(
            TotalOrderRequired, match=f"topic '{name}' was created with commit.order={order}"
        ) as refused:
            await writer.start()
        assert refused.value.definite and refused.value.code == 40926
        with pytest.raises(ClientClosed, match="not started"):
            await writer.append(b"a")
    finally:
        await writer.close()
    assert await read_all(cluster.bootstrap, TopicPartition(name, 0)) == [], "not even a claim"


async def test_a_broker_refuses_an_append_behind_an_end_where_order_is_not_total(
    cluster: LocalCluster, admin: AdminClient, topic_names: Iterator[str]
) -> None:
    name = next(topic_names)
    await admin.create_topic(name, partitions=1, configs={"commit.protocol": "paxos", "commit.order": "key"})
    security = Security()
    log = LogPartition(cluster.bootstrap, name, 0, request_timeout_ms=5000, entropy=None, security=security)
    await log.open()
    try:
        deadline_s = asyncio.get_running_loop().time() + 10
        batch = encode_batch([Record(0, None, b"a")], producer_id=7, producer_epoch=0, base_sequence=0)
        with pytest.raises(TotalOrderRequired, match="nothing was appended"):
            await log.append(batch, deadline_s, expected_end=0)
        assert await log.append(batch, deadline_s) == 0
    finally:
        await log.close()


async def test_a_range_that_is_not_there_ends_at_a_deadline(cluster: LocalCluster, log: str, writer: Writer) -> None:
    found = set[bytes]()
    await writer.append(b"a")
    async with Reader(cluster.bootstrap, log, timeout_ms=100) as reader:
        with pytest.raises(OffsetOutOfRange):
            while True:
                with suppress(NoAnswer):  # within 100 ms, as the machine is slow
                    async for entry in reader.read(0, writer.ending + 5):
                        found.add(entry.data)
        assert found == {b"a"}
        with pytest.raises(InvalidRequest):
            await anext(reader.read(2, 1))
