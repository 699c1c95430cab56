"""Produce from version 13 on names topics by id: records for a deleted topic never reach another of its name."""

from __future__ import annotations

import warnings
from typing import Any
from uuid import UUID

from tests.integration.kafka.conftest import KafkaSite, batch, request_frame, values_of
from tidelog.broker.kafka.apis import Key
from tidelog.broker.kafka.slices import ENTRIES
from tidelog.model.kafka_codes import KafkaCode

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # kafka-python reads its schemas by a deprecated call when it is imported
    from kafka.protocol.producer import ProduceRequest, ProduceResponse

VERSION = 13
UNKNOWN = UUID(int=5)
ZERO = UUID(int=0)
"""The id that stands for no id."""


def id_of(site: KafkaSite, topic: str = "t") -> UUID:
    return UUID(site.broker.topic(topic).topic_id)


def codes(partitions: Any) -> list[int]:
    return [int(partition.error_code) for partition in partitions]


async def test_an_unknown_id_is_told_to_its_partitions_and_troubles_no_other(site: KafkaSite) -> None:
    client, topic = await site.client(), id_of(site)
    entries = [(UNKNOWN, 0, batch(b"no")), (topic, 0, batch(b"a")), (ZERO, 0, batch(b"no")), (UNKNOWN, 0, b"?")]
    unknown, first, zero, again, second = await client.produce(*entries, (topic, 1, batch(b"b")), version=VERSION)
    assert codes((unknown, zero, again)) == [KafkaCode.UNKNOWN_TOPIC_ID] * 3
    assert codes((first, second)) == [0, 0] and unknown.base_offset == -1
    assert [site.led("t", partition).log_end_offset for partition in range(2)] == [1, 1]


async def test_a_topic_that_is_made_anew_gets_nothing_that_was_for_the_one_before(site: KafkaSite) -> None:
    client, before = await site.client(), id_of(site)
    await site.broker.admin.delete_topic("t")
    assert codes(await client.produce((before, 0, batch(b"a")), version=VERSION)) == [KafkaCode.UNKNOWN_TOPIC_ID]
    await site.topic()
    assert codes(await client.produce((before, 0, batch(b"a")), version=VERSION)) == [KafkaCode.UNKNOWN_TOPIC_ID]
    assert site.led().log_end_offset == 0
    assert codes(await client.produce((id_of(site), 0, batch(b"b")), version=VERSION)) == [0]


async def test_without_acks_an_unknown_id_ends_the_connection(site: KafkaSite) -> None:
    client = await site.client()
    topics = [{"topic_id": UNKNOWN, "partition_data": [{"index": 0, "records": batch(b"a")}]}]
    tree = {"transactional_id": None, "acks": 0, "timeout": 100, "topic_data": topics}
    client.send(request_frame(Key.PRODUCE, VERSION, tree))
    assert await client.receive() == b""


async def test_a_long_request_is_named_in_slices(site: KafkaSite) -> None:
    client, topic = await site.client(), id_of(site)
    entries = [(UNKNOWN, number, batch(b"no")) for number in range(2 * ENTRIES)]
    *unknown, done = await client.produce(*entries, (topic, 0, batch(b"a")), version=VERSION)
    assert set(codes(unknown)) == {KafkaCode.UNKNOWN_TOPIC_ID} and codes([done]) == [0]


async def test_kafka_pythons_codec_writes_what_is_read_and_reads_what_is_answered(site: KafkaSite) -> None:
    client, topic = await site.client(), id_of(site)
    data = ProduceRequest.TopicProduceData
    records = data.PartitionProduceData(index=1, records=batch(b"a", b"b"))
    topics = [data(topic_id=one, partition_data=[records]) for one in (topic, UNKNOWN)]
    request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=5_000, topic_data=topics, version=VERSION)
    request.with_header(correlation_id=7, client_id="tests")
    client.send(bytes(request.encode(version=VERSION, header=True)))
    answer = ProduceResponse.decode(await client.receive(), version=VERSION, header=True)
    told = [
        (one.topic_id, each.index, each.error_code, each.base_offset)
        for one in answer.responses
        for each in one.partition_responses
    ]
    assert told == [(topic, 1, 0, 0), (UNKNOWN, 1, KafkaCode.UNKNOWN_TOPIC_ID, -1)]
    (read,) = await client.fetch(("t", 1, 0))
    assert values_of(read.records) == [b"a", b"b"]
