"""Every version of every call that is offered, written and read by `kio`, which is made from Kafka's definitions."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.integration.kafka.conftest import KafkaSite, batch, fetch_tree, values_of
from tidelog.broker.kafka.apis import APIS, Key
from tidelog.model.kafka_codes import KafkaCode


def versions(key: Key, first: int = 0) -> range:
    return range(max(first, APIS[key].oldest), APIS[key].newest + 1)


async def test_api_versions_tell_what_there_is(site: KafkaSite) -> None:
    client = await site.client()
    for version in versions(Key.API_VERSIONS):
        answer = await client.ask(Key.API_VERSIONS, version, client_software_name="kio", client_software_version="0.6")
        assert answer.error_code == ErrorCode.none
        told = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        assert told == {api.key: (api.oldest, api.newest) for api in APIS.values()}
    assert site.server.metrics.software == {"kio 0.6": 1}


async def test_metadata(site: KafkaSite) -> None:
    client = await site.client()
    topic_id = uuid.UUID(site.broker.topic("t").topic_id)
    for version in versions(Key.METADATA):
        for topics in (None if version else [], [{"name": "t"}, {"name": "no"}, {"name": "a/b"}, {"name": "t"}]):
            tree: dict[str, Any] = {
                "topics": topics and [{"topic_id": None, **topic} for topic in topics],
                "include_topic_authorized_operations": False,
                "include_cluster_authorized_operations": False,
            }
            answer = await client.ask(Key.METADATA, version, **tree)
            (broker,) = answer.brokers
            assert (broker.node_id, broker.port) == (1, site.server.address[1])
            found = {topic.name: topic for topic in answer.topics}
            assert [each.leader_id for each in found["t"].partitions] == [1, 1]
            assert version < 10 or found["t"].topic_id == topic_id
            if topics:
                assert found["no"].error_code == KafkaCode.UNKNOWN_TOPIC_OR_PARTITION
                assert found["a/b"].error_code == KafkaCode.INVALID_TOPIC_EXCEPTION
                assert len(answer.topics) == 3


async def test_metadata_by_id_and_of_none(site: KafkaSite) -> None:
    client = await site.client()
    topic_id = uuid.UUID(site.broker.topic("t").topic_id)
    asked = [{"topic_id": topic_id, "name": None}, {"topic_id": uuid.UUID(int=5), "name": None}]
    answer = await client.ask(Key.METADATA, 12, topics=asked, include_topic_authorized_operations=False)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("t", ErrorCode.none),
        (None, ErrorCode.unknown_topic_id),
    ]
    assert (await client.ask(Key.METADATA, 4, topics=[])).topics == ()


@pytest.mark.parametrize("version", versions(Key.PRODUCE, 3))
async def test_produce_and_fetch(site: KafkaSite, version: int) -> None:
    client = await site.client()
    topic_id = uuid.UUID(site.broker.topic("t").topic_id)
    named, no_topic = ("t", "no") if version < 13 else (topic_id, uuid.UUID(int=5))
    (done,) = await client.produce((named, 0, batch(b"a", b"b")), version=version)
    assert (done.error_code, done.base_offset, done.index) == (ErrorCode.none, 0, 0)
    elsewhere, unknown = await client.produce((named, 9, batch(b"a")), (no_topic, 0, batch(b"a")), version=version)
    assert elsewhere.error_code == ErrorCode.unknown_topic_or_partition
    assert unknown.error_code == (ErrorCode.unknown_topic_or_partition if version < 13 else ErrorCode.unknown_topic_id)
    topic: Any = topic_id if version >= 10 else "t"
    fetch_version = 17 if version >= 10 else version + 1
    (read,) = await client.fetch((topic, 0, 1), version=fetch_version)
    assert (read.error_code, read.high_watermark, read.last_stable_offset) == (ErrorCode.none, 2, 2)
    assert values_of(read.records) == [b"a", b"b"]


async def test_old_produce_requests_are_refused(site: KafkaSite) -> None:
    client = await site.client()
    name, records = b"t", batch(b"a")
    for version in range(3):
        frame = (
            Key.PRODUCE.to_bytes(2) + version.to_bytes(2) + (7).to_bytes(4) + b"\xff\xff"
            + (1).to_bytes(2) + (1_000).to_bytes(4) + (1).to_bytes(4) + len(name).to_bytes(2) + name
            + (1).to_bytes(4) + (0).to_bytes(4) + len(records).to_bytes(4) + records
        )  # fmt: skip
        client.send(frame)
        answer = await client.receive()
        error = answer[4 + 4 + 2 + 1 + 4 + 4 :][:2]
        assert int.from_bytes(error) == KafkaCode.UNSUPPORTED_VERSION
    assert site.led().log_end_offset == 0


@pytest.mark.parametrize("version", versions(Key.FETCH))
async def test_fetch(site: KafkaSite, version: int) -> None:
    client = await site.client()
    await client.produce(("t", 1, batch(b"x")))
    topic: Any = uuid.UUID(site.broker.topic("t").topic_id) if version >= 13 else "t"
    first, second, beyond, no = await client.fetch(
        (topic, 0, 0), (topic, 1, 0), (topic, 1, 9), (topic, 7, 0), version=version
    )
    assert (first.partition_index, values_of(first.records or b"")) == (0, [])
    assert values_of(second.records) == [b"x"]
    assert beyond.error_code == ErrorCode.offset_out_of_range
    assert no.error_code == ErrorCode.unknown_topic_or_partition


@pytest.mark.parametrize("version", versions(Key.LIST_OFFSETS))
async def test_list_offsets(site: KafkaSite, version: int) -> None:
    client = await site.client()
    for at_ms in (1_000, 3_000, 2_000):
        await client.produce(("t", 0, batch(b"a", at_ms=at_ms)))

    async def offset(timestamp: int) -> tuple[int, int]:
        partitions = [{"partition_index": 0, "timestamp": timestamp}]
        topics = [{"name": "t", "partitions": partitions}]
        answer = await client.ask(
            Key.LIST_OFFSETS, version, replica_id=-1, isolation_level=0, topics=topics, timeout=100
        )
        (found,) = answer.topics[0].partitions
        assert found.error_code == ErrorCode.none
        return found.offset, found.timestamp

    assert await offset(-1) == (3, -1)
    assert await offset(-2) == (0, -1)
    assert await offset(1_500) == (1, 3_000)
    assert await offset(9_000) == (-1, -1)
    assert await offset(-3) == (1, 3_000)
    assert await offset(-4) == (0, -1)
    assert await offset(-5) == await offset(-6) == (-1, -1), "nothing is in tiered storage, nor goes there"


async def test_cold_calls(site: KafkaSite) -> None:
    client = await site.client()
    for version in versions(Key.OFFSET_FOR_LEADER_EPOCH):
        partitions = [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]
        answer = await client.ask(
            Key.OFFSET_FOR_LEADER_EPOCH, version, topics=[{"topic": "t", "partitions": partitions}]
        )
        (found,) = answer.topics[0].partitions
        assert (found.error_code, found.end_offset) == (ErrorCode.none, 0)
    ids = {
        (await client.ask(Key.INIT_PRODUCER_ID, version, transactional_id=None, transaction_timeout=0)).producer_id
        for version in versions(Key.INIT_PRODUCER_ID)
    }
    assert len(ids) == len(versions(Key.INIT_PRODUCER_ID)), "nobody gets an id twice"
    refused = await client.ask(Key.INIT_PRODUCER_ID, 4, transactional_id="mine", transaction_timeout=0)
    assert refused.error_code == KafkaCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    for version in versions(Key.DESCRIBE_CLUSTER):
        answer = await client.ask(
            Key.DESCRIBE_CLUSTER, version, include_cluster_authorized_operations=False, include_fenced_brokers=False
        )
        assert [broker.port for broker in answer.brokers] == [site.server.address[1]]
    for version in versions(Key.SASL_HANDSHAKE):
        assert (await client.ask(Key.SASL_HANDSHAKE, version, mechanism="PLAIN")).error_code == 33
    for version in versions(Key.SASL_AUTHENTICATE):
        assert (await client.ask(Key.SASL_AUTHENTICATE, version, auth_bytes=b"")).error_code == 34


@pytest.mark.parametrize("version", [APIS[Key.API_VERSIONS].newest + 1, 99])
async def test_a_client_that_is_too_new_is_told_the_table_in_version_0(site: KafkaSite, version: int) -> None:
    client = await site.client()
    client.send(Key.API_VERSIONS.to_bytes(2) + version.to_bytes(2) + (7).to_bytes(4) + b"\xff\xff")
    frame = await client.receive()
    assert (int.from_bytes(frame[:4]), int.from_bytes(frame[4:6])) == (7, KafkaCode.UNSUPPORTED_VERSION)
    assert int.from_bytes(frame[6:10]) == len(APIS)
    assert fetch_tree() and (await client.ask(Key.API_VERSIONS, 0)).error_code == ErrorCode.none
