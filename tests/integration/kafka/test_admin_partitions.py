"""Records are deleted, leaders elected and replicas moved over Kafka's protocol, each partition by itself."""

from __future__ import annotations

from typing import Any

from tests.integration.kafka.conftest import KafkaSite, batch
from tests.integration.kafka.test_versions import versions
from tidelog.broker.kafka.admin.codes import AdminCode
from tidelog.broker.kafka.apis import Key
from tidelog.model.kafka_codes import KafkaCode


async def test_records_are_deleted(site: KafkaSite) -> None:
    client = await site.client()
    await client.produce(("t", 0, batch(*[b"a"] * 10)))
    begin = 0
    for version in versions(Key.DELETE_RECORDS):
        begin += 2
        offsets = [(0, begin), (1, 5), (9, 0)]
        partitions = [{"partition_index": number, "offset": offset} for number, offset in offsets]
        topics = [{"name": "t", "partitions": partitions}, {"name": "no", "partitions": partitions[:1]}]
        answer = await client.ask(Key.DELETE_RECORDS, version, topics=topics, timeout=5_000)
        told = [(each.error_code.value, each.low_watermark) for topic in answer.topics for each in topic.partitions]
        assert told == [(0, begin), (KafkaCode.OFFSET_OUT_OF_RANGE, -1), (3, -1), (3, -1)]
        assert site.led().log_start_offset == begin


async def test_all_records_are_deleted_and_no_partition_twice(site: KafkaSite) -> None:
    client = await site.client()
    await client.produce(("t", 0, batch(b"a", b"b")))
    partitions = [{"partition_index": number, "offset": -1} for number in (0, 1, 1)]
    partitions += [{"partition_index": 0, "offset": -2}]
    topics = [{"name": "t", "partitions": partitions[:3]}]
    answer = await client.ask(Key.DELETE_RECORDS, 2, topics=topics, timeout=0)
    assert [each.error_code.value for each in answer.topics[0].partitions] == [0, 42, 42]
    assert site.led().log_start_offset == 2
    topics = [{"name": "t", "partitions": partitions[3:]}]
    answer = await client.ask(Key.DELETE_RECORDS, 2, topics=topics, timeout=0)
    assert answer.topics[0].partitions[0].error_code.value == KafkaCode.OFFSET_OUT_OF_RANGE


async def test_leaders_are_elected(site: KafkaSite) -> None:
    client = await site.client()
    for version in versions(Key.ELECT_LEADERS):
        asked = [{"topic": "t", "partitions": [0, 9]}, {"topic": "no", "partitions": [0]}]
        for kind, needed in ((0, AdminCode.ELECTION_NOT_NEEDED), (1, AdminCode.ELECTION_NOT_NEEDED)):
            answer = await client.ask(
                Key.ELECT_LEADERS, version, election_type=kind, topic_partitions=asked, timeout=1_000
            )
            told = {
                (topic.topic, each.partition_id): each.error_code.value
                for topic in answer.replica_election_results
                for each in topic.partition_result
            }
            assert told == {("t", 0): needed, ("t", 9): 3, ("no", 0): 3}
        answer = await client.ask(Key.ELECT_LEADERS, version, election_type=0, topic_partitions=None, timeout=1_000)
        assert answer.replica_election_results == ()
    answer = await client.ask(Key.ELECT_LEADERS, 2, election_type=7, topic_partitions=asked, timeout=1_000)
    assert answer.error_code.value == 42


def move(number: int, replicas: Any) -> dict[str, Any]:
    return {"partition_index": number, "replicas": replicas}


async def test_replicas_move_each_by_itself(site: KafkaSite) -> None:
    client = await site.client()
    moves = [move(0, (1,)), move(1, (9,)), move(7, (1,)), move(-1, (1,))]
    topics = [{"name": "t", "partitions": moves}, {"name": "no", "partitions": moves[:1]}]
    answer = await client.ask(Key.ALTER_PARTITION_REASSIGNMENTS, 0, topics=topics, timeout=1_000)
    told = [each.error_code.value for topic in answer.responses for each in topic.partitions]
    assert told == [0, AdminCode.INVALID_REPLICA_ASSIGNMENT, 3, 3, 3]
    moves = [move(0, None), move(1, (1, 1)), move(2, ()), move(2, ())]
    for allowed, expected in (
        (True, AdminCode.INVALID_REPLICA_ASSIGNMENT),
        (False, AdminCode.INVALID_REPLICATION_FACTOR),
    ):
        topics = [{"name": "t", "partitions": moves}]
        answer = await client.ask(
            Key.ALTER_PARTITION_REASSIGNMENTS, 1, topics=topics, timeout=1_000, allow_replication_factor_change=allowed
        )
        told = [each.error_code.value for each in answer.responses[0].partitions]
        assert told == [AdminCode.NO_REASSIGNMENT_IN_PROGRESS, expected, 42, 42]
    answer = await client.ask(Key.LIST_PARTITION_REASSIGNMENTS, 0, topics=None, timeout=1_000)
    assert (answer.error_code.value, answer.topics) == (0, ())
