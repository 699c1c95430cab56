"""What the cluster consists of, over Kafka's protocol: the metadata log, its voters, and what has settings."""

from __future__ import annotations

import pytest

from tests.integration.kafka.admin_kit import beside, kafka_python
from tests.integration.kafka.conftest import KafkaSite
from tests.integration.kafka.test_versions import versions
from tidelog.broker.kafka.admin.codes import AdminCode
from tidelog.broker.kafka.apis import Key
from tidelog.model.kafka_codes import KafkaCode


async def test_the_metadata_log_is_described(site: KafkaSite) -> None:
    client = await site.client()
    image = site.broker.image
    (voter,) = image.voters
    for version in versions(Key.DESCRIBE_QUORUM):
        logs = [("__cluster_metadata", (0, 1)), ("t", (0,))]
        topics = [
            {"topic_name": name, "partitions": [{"partition_index": number} for number in numbers]}
            for name, numbers in logs
        ]
        answer = await client.ask(Key.DESCRIBE_QUORUM, version, topics=topics)
        found, beyond, no_log = (one for topic in answer.topics for one in topic.partitions)
        assert answer.error_code.value == found.error_code.value == 0
        assert (found.leader_id, found.leader_epoch) == (1, image.controller_epoch)
        assert found.high_watermark == site.broker.image.position
        assert [(one.replica_id, one.log_end_offset) for one in found.current_voters] == [(1, found.high_watermark)]
        assert found.observers == ()
        for other in (beyond, no_log):
            assert (other.error_code.value, other.leader_id) == (KafkaCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        if version == 2:
            (node,) = answer.nodes
            assert [(one.host, one.port) for one in node.listeners] == [(voter.host, voter.port)]


async def test_what_has_settings_is_listed(site: KafkaSite) -> None:
    client = await site.client()
    topics = {(name, 2) for name in site.broker.image.topics}
    for kinds, found in (
        ((), topics | {("1", 4), ("1", 8)}),
        ((4,), {("1", 4)}),
        ((2, 16), topics),
        ((8, 16, 32), {("1", 8)}),
    ):
        answer = await client.ask(Key.LIST_CONFIG_RESOURCES, 1, resource_types=kinds)
        assert answer.error_code.value == 0
        assert {(one.resource_name, one.resource_type) for one in answer.config_resources} == found
    answer = await client.ask(Key.LIST_CONFIG_RESOURCES, 1, resource_types=(2, 7))
    assert (answer.error_code.value, answer.config_resources) == (KafkaCode.UNSUPPORTED_VERSION, ())
    answer = await client.ask(Key.LIST_CONFIG_RESOURCES, 0)
    assert (answer.error_code.value, answer.config_resources) == (0, ()), "version 0 asks for client metrics"


async def test_replicas_stay_in_the_one_directory(site: KafkaSite) -> None:
    client = await site.client()
    here, topics = site.config.log_dir, [{"name": "t", "partitions": (0, 9)}, {"name": "no", "partitions": (0,)}]
    for version in versions(Key.ALTER_REPLICA_LOG_DIRS):
        for path, code in ((here, 0), ("/elsewhere", AdminCode.LOG_DIR_NOT_FOUND)):
            answer = await client.ask(Key.ALTER_REPLICA_LOG_DIRS, version, dirs=[{"path": path, "topics": topics}])
            told = {
                (topic.topic_name, one.partition_index): one.error_code.value
                for topic in answer.results
                for one in topic.partitions
            }
            assert told == {("t", 0): code, ("t", 9): 3, ("no", 0): 3}


@pytest.mark.usefixtures("kafka_python_sockets")
async def test_a_client_describes_the_metadata_log(site: KafkaSite) -> None:
    async with kafka_python(site) as admin:
        described = await beside(admin.describe_metadata_quorum)
    (partition,) = described["topics"][0]["partitions"]
    assert (partition["leader_id"], [one["replica_id"] for one in partition["current_voters"]]) == (1, [1])
