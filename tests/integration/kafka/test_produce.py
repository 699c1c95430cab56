"""Produce: each partition has its own outcome, pipelines are judged in order, and what is refused is nowhere."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.integration.kafka.conftest import Client, KafkaSite, batch, read_answer, request_frame, started, values_of
from tidelog.broker.kafka.apis import Key
from tidelog.broker.kafka.produce import Led, Production
from tidelog.broker.kafka.produce_codec import ProduceEntry
from tidelog.broker.kafka.slices import ENTRIES
from tidelog.model.errors import Overloaded, TimedOutAfterAppend
from tidelog.model.kafka_codes import KafkaCode

GOOD = batch(b"good")


def changed(position: int, value: bytes) -> bytes:
    data = bytearray(GOOD)
    data[position : position + len(value)] = value
    return bytes(data)


REFUSED = {
    "magic 0": (changed(16, b"\0"), KafkaCode.INVALID_RECORD),
    "magic 1": (changed(16, b"\1"), KafkaCode.INVALID_RECORD),
    "magic 3": (changed(16, b"\3"), KafkaCode.INVALID_RECORD),
    "checksum": (changed(len(GOOD) - 1, b"?"), KafkaCode.CORRUPT_MESSAGE),
    "codec": (changed(22, b"\7"), KafkaCode.INVALID_RECORD),
    "control": (changed(22, b"\x20"), KafkaCode.INVALID_RECORD),
    "transactional": (changed(22, b"\x10"), KafkaCode.INVALID_RECORD),
    "counts": (changed(57, b"\x7f\xff\xff\xff"), KafkaCode.INVALID_RECORD),
    "negative length": (changed(8, b"\xff\xff\xff\xff"), KafkaCode.INVALID_RECORD),
    "half": (GOOD[:40], KafkaCode.INVALID_RECORD),
    "cut": (GOOD[:-1], KafkaCode.INVALID_RECORD),
    "two": (GOOD + GOOD, KafkaCode.INVALID_RECORD),
    "none": (b"", KafkaCode.INVALID_RECORD),
    "null": (None, KafkaCode.INVALID_RECORD),
    "large": (batch(b"x" * 2_000_000), KafkaCode.MESSAGE_TOO_LARGE),
}


async def test_what_is_wrong_with_one_partition_troubles_no_other() -> None:
    async with started(partitions=len(REFUSED) + 1) as site:
        client = await site.client()
        entries: list[Any] = [("t", number, data) for number, (data, _) in enumerate(REFUSED.values())]
        *refused, good = await client.produce(*entries, ("t", len(REFUSED), GOOD))
        told = dict(zip(REFUSED, [KafkaCode(one.error_code) for one in refused], strict=True))
        assert told == {name: code for name, (_, code) in REFUSED.items()}
        assert (good.error_code, good.base_offset) == (ErrorCode.none, 0)
        assert all(site.led("t", number).log_end_offset == 0 for number in range(len(REFUSED)))


async def test_a_partition_that_comes_twice_is_taken_once(site: KafkaSite) -> None:
    first, second = await (await site.client()).produce(("t", 0, GOOD), ("t", 0, GOOD))
    assert (first.error_code, second.error_code) == (ErrorCode.none, ErrorCode.invalid_request)
    assert site.led().log_end_offset == 1


async def test_terms_that_there_are_not(site: KafkaSite) -> None:
    client = await site.client()
    (acks,) = await client.produce(("t", 0, GOOD), acks=7)
    assert acks.error_code == ErrorCode.invalid_required_acks
    tree = {"transactional_id": "mine", "acks": -1, "timeout": 100}
    topics = [{"name": "t", "partition_data": [{"index": 0, "records": GOOD}]}]
    answer = await client.ask(Key.PRODUCE, 9, **tree, topic_data=topics)
    assert answer.responses[0].partition_responses[0].error_code == KafkaCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    (internal,) = await client.produce(("__consumer_offsets", 0, GOOD))
    assert internal.error_code == ErrorCode.unknown_topic_or_partition
    assert site.led().log_end_offset == 0


def produce_frame(records: bytes, number: int, acks: int = -1, topic: str = "t") -> bytes:
    topics = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
    tree = {"transactional_id": None, "acks": acks, "timeout": 5_000, "topic_data": topics}
    return request_frame(Key.PRODUCE, 9, tree, number)


async def outcomes(client: Client, count: int) -> list[tuple[int, int, int]]:
    """Correlation id, error and offset of so many answers."""
    found = []
    for _ in range(count):
        frame = await client.receive()
        (partition,) = read_answer(Key.PRODUCE, 9, frame).responses[0].partition_responses
        found.append((int.from_bytes(frame[:4]), int(partition.error_code), partition.base_offset))
    return found


async def test_pipelined_requests_of_an_idempotent_producer(site: KafkaSite) -> None:
    client = await site.client()
    for sequence in range(40):
        client.send(produce_frame(batch(b"%d" % sequence, producer_id=5, sequence=sequence), sequence))
    assert await outcomes(client, 40) == [(sequence, 0, sequence) for sequence in range(40)]
    again = [39, 34]
    for sequence in again:
        client.send(produce_frame(batch(b"%d" % sequence, producer_id=5, sequence=sequence), sequence))
    assert await outcomes(client, 2) == [(39, 0, 39), (34, KafkaCode.DUPLICATE_SEQUENCE_NUMBER, -1)]
    client.send(produce_frame(batch(b"gap", producer_id=5, sequence=50), 50))
    client.send(produce_frame(batch(b"old", producer_id=5, sequence=0, epoch=0), 51))
    found = await outcomes(client, 2)
    assert [error for _, error, _ in found] == [
        KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaCode.DUPLICATE_SEQUENCE_NUMBER,
    ]


async def test_acks_0_are_not_answered_and_a_refusal_ends_the_connection(site: KafkaSite) -> None:
    client = await site.client()
    client.send(produce_frame(GOOD, 1, acks=0))
    client.send(produce_frame(GOOD, 2))
    assert await outcomes(client, 1) == [(2, 0, 1)]
    client.send(produce_frame(GOOD, 3, acks=0, topic="no"))
    assert await client.receive() == b""


async def test_answers_keep_the_order_of_requests(site: KafkaSite) -> None:
    client = await site.client()
    for number in range(10):
        client.send(produce_frame(GOOD, 2 * number, topic="t" if number % 2 else "no"))
        client.send(request_frame(Key.METADATA, 9, {"topics": [], **AUTHORIZED}, 2 * number + 1))
    numbers = [int.from_bytes((await client.receive())[:4]) for _ in range(20)]
    assert numbers == [*range(20)]


AUTHORIZED = {"include_cluster_authorized_operations": False, "include_topic_authorized_operations": False}


def long_frame(records: bytes, number: int, acks: int = -1) -> bytes:
    """A request of 1,001 partitions, of which the last one exists."""
    none = [{"index": index, "records": GOOD} for index in range(2, 1_002)]
    topics = [{"name": "t", "partition_data": [*none, {"index": 0, "records": records}]}]
    tree = {"transactional_id": None, "acks": acks, "timeout": 5_000, "topic_data": topics}
    return request_frame(Key.PRODUCE, 9, tree, number)


async def test_a_long_request_goes_in_slices_and_keeps_its_place(
    site: KafkaSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    led = Production.led

    def counted(production: Production, entries: Sequence[ProduceEntry]) -> Led:
        sizes.append(len(entries))
        return led(production, entries)

    monkeypatch.setattr(Production, "led", counted)
    client = await site.client()
    client.send(long_frame(batch(b"0", producer_id=5), 0))
    client.send(produce_frame(batch(b"1", producer_id=5, sequence=1), 1))
    long = read_answer(Key.PRODUCE, 9, await client.receive())
    *none, good = long.responses[0].partition_responses
    assert {one.error_code for one in none} == {ErrorCode.unknown_topic_or_partition}
    assert (good.error_code, good.base_offset) == (ErrorCode.none, 0)
    assert await outcomes(client, 1) == [(1, 0, 1)]
    assert sizes == [*[ENTRIES] * 4, 1, 1]


async def held_up(site: KafkaSite, large: bytes) -> list[Client]:
    """Returns clients that have sent more than a mailbox takes, to a partition that appends nothing now."""
    site.led().hold_back()
    clients = [await site.client() for _ in range(20)]
    for client in clients:
        client.send(produce_frame(large, 1))
    return clients


async def test_a_long_request_waits_for_room(site: KafkaSite) -> None:
    led, large = site.led(), batch(b"x" * 900_000)
    clients = await held_up(site, large)
    while led.has_room(len(large)):
        await asyncio.sleep(0.01)
    late = await site.client()
    late.send(long_frame(large, 1))
    (answered,) = await (await site.client()).produce(("t", 1, GOOD))
    assert answered.error_code == ErrorCode.none
    led.go_on()
    assert read_answer(Key.PRODUCE, 9, await late.receive()).responses[0].partition_responses[-1].error_code == 0
    assert {(await outcomes(client, 1))[0][1] for client in clients} == {0}


async def test_a_long_request_without_acks_ends_the_connection_if_it_is_refused(site: KafkaSite) -> None:
    client = await site.client()
    client.send(long_frame(GOOD, 1, acks=0))
    assert await client.receive() == b""
    assert site.server.parts.admission.bodies.used == 0


async def test_a_full_mailbox_holds_the_connection_and_refuses_nothing(site: KafkaSite) -> None:
    led, large = site.led(), batch(b"x" * 900_000)
    clients = await held_up(site, large)
    other = await site.client()
    (answered,) = await other.produce(("t", 1, GOOD))
    assert answered.error_code == ErrorCode.none
    while site.server.parts.admission.bodies.used < 20 * len(large):
        await asyncio.sleep(0.01)
    led.go_on()
    assert {(await outcomes(client, 1))[0][1] for client in clients} == {0}
    assert led.log_end_offset == 20
    while site.server.parts.admission.bodies.used:
        await asyncio.sleep(0.01)


async def test_a_deadline_is_definite_before_the_append(site: KafkaSite) -> None:
    site.led().hold_back()
    client = await site.client()
    topics = [{"name": "t", "partition_data": [{"index": 0, "records": GOOD}]}]
    tree = {"transactional_id": None, "acks": -1, "timeout": 50, "topic_data": topics}
    answer = await client.ask(Key.PRODUCE, 9, **tree)
    (partition,) = answer.responses[0].partition_responses
    assert partition.error_code == Overloaded.kafka
    assert TimedOutAfterAppend.kafka == KafkaCode.REQUEST_TIMED_OUT
    site.led().go_on()
    await client.produce(("t", 0, batch(b"next")))
    (read,) = await client.fetch(("t", 0, 0))
    assert values_of(read.records) == [b"next"]


async def test_who_is_gone_before_the_append_leaves_nothing(site: KafkaSite) -> None:
    led = site.led()
    led.hold_back()
    client = await site.client()
    client.send(produce_frame(GOOD, 1))
    while not len(led._intake.mailbox):
        await asyncio.sleep(0.01)
    await client.close()
    while site.server.parts.admission.connections.open:
        await asyncio.sleep(0.01)
    led.go_on()
    (after,) = await (await site.client()).produce(("t", 0, GOOD))
    assert after.base_offset == 0
    assert site.server.parts.admission.bodies.used == 0


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
async def test_timestamps_are_told_where_the_broker_sets_them(kind: str) -> None:
    async with started() as site:
        await site.topic("stamped", message_timestamp_type=kind)
        (done,) = await (await site.client()).produce(("stamped", 0, batch(b"a", at_ms=5)))
        assert (done.log_append_time is None) == (kind == "CreateTime")
