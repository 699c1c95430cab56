"""Clients that people have, as they come from PyPI: they subscribe, share, commit, go on where they were, and reset."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient

from tests.integration.kafka.conftest import KafkaSite, batch
from tidelog.model.errors import CoordinatorNotAvailable
from tidelog.model.groups import FetchOffsets

WAIT_S = 20.0
POLL_S = 0.1
ALL = {b"a", b"b", b"c", b"d"}


async def fill(site: KafkaSite, *values: bytes) -> None:
    client = await site.client()
    for number, value in enumerate(values):
        await client.produce(("t", number % 2, batch(value)))


def address(site: KafkaSite) -> str:
    return f"127.0.0.1:{site.server.address[1]}"


# -- confluent-kafka --------------------------------------------------------------------------------------------------


class Member:
    """A consumer of confluent-kafka in a thread of its own, until `stop`."""

    def __init__(self, servers: str, protocol: str, **options: Any) -> None:
        self.values: list[bytes] = []
        self.errors: list[str] = []
        self.partitions: set[int] = set()
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "g",
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **({"session.timeout.ms": 6_000, "heartbeat.interval.ms": 100} if protocol == "classic" else {}),
                **options,
            }
        )
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self._consumer.subscribe(["t"])
        while not self._is_over.is_set():
            message = self._consumer.poll(POLL_S)
            if message is not None and message.error() is not None:
                self.errors.append(str(message.error()))
            elif message is not None:
                self.values.append(message.value() or b"")
                self._consumer.commit(message=message, asynchronous=False)
            self.partitions = {one.partition for one in self._consumer.assignment()}
        self._consumer.close()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()


@contextlib.contextmanager
def members(servers: str, protocol: str, *options: Mapping[str, Any]) -> Iterator[list[Member]]:
    made = [Member(servers, protocol, **each) for each in options]
    try:
        yield made
    finally:
        for member in made:
            member.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.01)


async def stopped(made: Sequence[Member]) -> None:
    await asyncio.gather(*(asyncio.to_thread(member.stop) for member in made))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_confluent_members_share_and_go_on_where_they_were(site: KafkaSite, protocol: str) -> None:
    await fill(site, *sorted(ALL))
    servers = address(site)
    with members(servers, protocol, {}) as (first,):
        await until(lambda: set(first.values) == ALL)
        with members(servers, protocol, {}) as (second,):
            await until(lambda: [len(first.partitions), len(second.partitions)] == [1, 1])
            await fill(site, b"e", b"f")
            await until(lambda: set(first.values + second.values) == {*ALL, b"e", b"f"})
            await stopped([second])
        await until(lambda: len(first.partitions) == 2)
        await stopped([first])
        assert sorted(first.values + second.values) == [*sorted(ALL), b"e", b"f"], "nothing came twice"
    await asyncio.to_thread(look_and_reset, servers, protocol)
    with members(servers, protocol, {}) as (again,):
        await until(lambda: again.values == [b"c", b"e"])
        await stopped([again])


def look_and_reset(servers: str, protocol: str) -> None:
    """The group has no members any more; its first partition begins at the second record."""
    admin = AdminClient({"bootstrap.servers": servers})
    described = admin.describe_consumer_groups(["g"])["g"].result()
    assert (described.state.name, described.type.name, described.members) == ("EMPTY", protocol.upper(), [])
    asked = [ConsumerGroupTopicPartitions("g")]
    (shown,) = [future.result() for future in admin.list_consumer_group_offsets(asked).values()]
    assert {(one.partition, one.offset) for one in shown.topic_partitions} == {(0, 3), (1, 3)}
    reset = [ConsumerGroupTopicPartitions("g", [ConfluentPartition("t", 0, 1)])]
    (done,) = [future.result() for future in admin.alter_consumer_group_offsets(reset).values()]
    assert [one.error for one in done.topic_partitions] == [None]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_static_confluent_member_comes_back_to_what_it_had(site: KafkaSite, protocol: str) -> None:
    await fill(site, *sorted(ALL))
    servers, names = address(site), [{"group.instance.id": name} for name in ("i", "j")]
    with members(servers, protocol, *names) as (first, second):
        await until(lambda: len(first.partitions) == len(second.partitions) == 1)
        had = set(first.partitions)
        await stopped([first])
        with members(servers, protocol, names[0]) as (again,):
            await until(lambda: again.partitions == had)
            assert second.partitions == {0, 1} - had, "it was not disturbed"
            await stopped([again, second])


# -- aiokafka ---------------------------------------------------------------------------------------------------------


def aiokafka_member(servers: str, **options: Any) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        "t",
        bootstrap_servers=servers,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=100,
        **options,
    )


async def read(consumers: Sequence[AIOKafkaConsumer], count: int) -> list[bytes]:
    values: list[bytes] = []
    async with asyncio.timeout(WAIT_S):
        while len(values) < count:
            for consumer in consumers:
                for records in (await consumer.getmany(timeout_ms=20)).values():
                    values += [record.value for record in records]
    return values


async def test_aiokafka_members_share_and_go_on_where_they_were(site: KafkaSite) -> None:
    await fill(site, *sorted(ALL))
    made = [aiokafka_member(address(site), group_instance_id=name) for name in ("i", "j")]
    await asyncio.gather(*(one.start() for one in made))
    assert set(await read(made, 4)) == ALL
    await until(lambda: all(len(one.assignment()) == 1 for one in made))
    for one in made:
        await one.commit()
    admin = AIOKafkaAdminClient(bootstrap_servers=address(site))
    await admin.start()
    assert await admin.list_consumer_groups() == [("g", "consumer")]
    shown = await admin.list_consumer_group_offsets("g")
    assert {(tp.partition, one.offset) for tp, one in shown.items()} == {(0, 2), (1, 2)}
    await admin.close()
    for one in made:
        await one.stop()
    await fill(site, b"e")
    again = aiokafka_member(address(site), group_instance_id="i")
    await again.start()
    assert await read([again], 1) == [b"e"]
    await again.stop()


def refuse_offsets(site: KafkaSite, monkeypatch: pytest.MonkeyPatch, times: int) -> list[CoordinatorNotAvailable]:
    """Has the next questions for committed offsets be refused; returns the errors that are still to come."""
    groups, refusals = site.broker.face.groups, [CoordinatorNotAvailable("it loads the group")] * times
    ask = groups.ask

    async def ask_in_vain(request: Any, *, deadline_s: float) -> Any:
        if isinstance(request, FetchOffsets) and refusals:
            raise refusals.pop()
        return await ask(request, deadline_s=deadline_s)

    monkeypatch.setattr(groups, "ask", ask_in_vain)
    return refusals


async def test_aiokafka_goes_on_where_it_was_when_the_coordinator_has_to_load_the_group(
    site: KafkaSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(site, *sorted(ALL))
    first = aiokafka_member(address(site))
    await first.start()
    assert set(await read([first], 4)) == ALL
    await first.commit()
    await first.stop()
    refusals = refuse_offsets(site, monkeypatch, 2)
    again = aiokafka_member(address(site))
    await again.start()
    await fill(site, b"e")
    assert await read([again], 1) == [b"e"], "it did not begin anew"
    assert not refusals
    await again.stop()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_confluent_goes_on_where_it_was_when_the_coordinator_has_to_load_the_group(
    site: KafkaSite, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    await fill(site, *sorted(ALL))
    with members(address(site), protocol, {}) as (first,):
        await until(lambda: set(first.values) == ALL)
        await stopped([first])
    refusals = refuse_offsets(site, monkeypatch, 2)
    with members(address(site), protocol, {}) as (again,):
        await fill(site, b"e")
        await until(lambda: again.values == [b"e"])
        assert (refusals, again.errors) == ([], [])
        await stopped([again])


# -- kafka-python -----------------------------------------------------------------------------------------------------


def kafka_python_reads(servers: str, count: int) -> list[bytes]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        "t",
        bootstrap_servers=servers,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=WAIT_S * 1000,
    )
    values = [record.value for _, record in zip(range(count), consumer, strict=False)]
    consumer.commit()
    assert consumer.committed(TopicPartition("t", 0)) is not None
    consumer.close()
    return values


def kafka_python_operates(servers: str) -> None:
    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=servers)
    assert [one["group_id"] for one in admin.list_groups()] == ["g"]
    described = admin.describe_groups(["g", "no"])
    assert (described["g"]["group_state"], described["no"]["group_state"]) == ("Empty", "Dead")
    offsets = admin.list_group_offsets(["g"])["g"]
    assert {(tp.partition, one.offset) for tp, one in offsets.items()} == {(0, 2), (1, 2)}
    assert admin.delete_groups(["g"]) == {"g": "OK"}
    admin.close()


@pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning")
@pytest.mark.usefixtures("kafka_python_sockets")
async def test_kafka_python_reads_commits_and_operates(site: KafkaSite) -> None:
    await fill(site, *sorted(ALL))
    assert set(await asyncio.to_thread(kafka_python_reads, address(site), 4)) == ALL
    await asyncio.to_thread(kafka_python_operates, address(site))
