"""The admin client on a real broker: topics from creation to deletion, settings, brokers, offsets."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from tidelog.admin import AdminClient, BrokerState, NewTopic, OffsetReset, TopicOwned
from tidelog.consumer import Consumer
from tidelog.model.errors import (
    GroupNotEmpty,
    InvalidRequest,
    NotFound,
    OffsetOutOfRange,
    TopicExists,
    UnknownGroup,
    UnknownTopic,
)
from tidelog.model.ids import TopicPartition
from tidelog.producer import Producer
from tidelog.testing import LocalCluster
from tidelog.transport.errors import ClientClosed

pytestmark = pytest.mark.process


async def test_a_topics_life(admin: AdminClient) -> None:
    placed = await admin.create_topic("life", partitions=2, configs={"retention.ms": "60000"})
    assert (placed.topic_name, placed.partitions_count, placed.replication_factor) == ("life", 2, 1)
    assert [(partition.partition_id, partition.replicas) for partition in placed.assignments] == [(0, (1,)), (1, (1,))]
    described = await admin.describe_topic("life")
    assert (described.topic_id, described.protocol, described.is_internal) == (placed.topic_id, "isr", False)
    assert [(partition.leader, partition.isr) for partition in described.partitions] == [(1, (1,)), (1, (1,))]
    assert "life" in await admin.list_topics()
    assert (await admin.create_partitions("life", 3)).partitions_count == 3
    await admin.delete_topic("life")
    assert "life" not in await admin.list_topics()
    with pytest.raises(UnknownTopic):
        await admin.describe_topic("life")
    with pytest.raises(UnknownTopic):
        await admin.delete_topic("life")


async def test_creating_is_checked_and_can_be_tried_out(admin: AdminClient) -> None:
    tried = await admin.create_topic("tried", partitions=4, validate_only=True)
    assert tried.partitions_count == 4
    assert "tried" not in await admin.list_topics()
    created = await admin.create_topics(
        [NewTopic(topic_name="one"), NewTopic(topic_name="two", replicas_assignments={0: [1], 1: [1]})]
    )
    assert [topic.partitions_count for topic in created] == [1, 2]
    with pytest.raises(InvalidRequest, match="no topic name") as refused:
        await admin.create_topic("../one")
    assert not isinstance(refused.value, TopicExists)
    with pytest.raises(InvalidRequest, match="retention"):
        await admin.create_topic("three", configs={"retention.msec": "1"})
    described = await admin.describe_topics(["two", "one"])
    assert [topic.topic_name for topic in described] == ["two", "one"]
    assert {"one", "two"} <= {topic.topic_name for topic in await admin.describe_topics()}


async def test_a_topic_that_exists_is_told_from_one_that_cannot_be(admin: AdminClient, topic: str) -> None:
    for validate_only in (False, True):
        with pytest.raises(TopicExists, match=f"topic {topic} exists already") as exists:
            await admin.create_topic(topic, validate_only=validate_only)
        assert (exists.value.code, exists.value.definite) == (40002, True)
    described = await admin.describe_topic(topic)
    found = await admin.create_topic(topic, partitions=7, exist_ok=True)
    assert (found.topic_id, found.partitions_count) == (described.topic_id, 1)
    assert [at.replicas for at in found.assignments] == [at.replicas for at in described.partitions]
    await admin.delete_topic(topic)
    assert [
        made.partitions_count for made in await admin.create_topics([NewTopic(topic_name=topic)], exist_ok=True)
    ] == [1]
    with pytest.raises(InvalidRequest, match="no topic name"):
        await admin.create_topic("../one", exist_ok=True)


async def test_settings_are_changed_together_or_not_at_all(admin: AdminClient, topic: str) -> None:
    async def shown(name: str) -> tuple[str | None, str]:
        [config] = [config for config in await admin.describe_configs(topic) if config.name == name]
        return config.value, config.source

    before = await shown("retention.ms")
    assert before[1] == "DEFAULT_CONFIG"
    await admin.alter_configs(topic, {"retention.ms": "5000", "max.message.bytes": "2000"})
    assert await shown("retention.ms") == ("5000", "DYNAMIC_TOPIC_CONFIG")
    with pytest.raises(InvalidRequest):
        await admin.alter_configs(topic, {"retention.ms": "7000", "max.message.bytes": "many"})
    await admin.alter_configs(topic, {"retention.ms": "8000"}, validate_only=True)
    assert (await shown("retention.ms"))[0] == "5000"
    await admin.alter_configs(topic, {"retention.ms": None})
    assert await shown("retention.ms") == before
    assert (await shown("max.message.bytes"))[0] == "2000"
    with pytest.raises(UnknownTopic):
        await admin.describe_configs("no-such-topic")


async def test_an_order_of_commits_is_chosen_when_a_topic_is_made(admin: AdminClient) -> None:
    by_key = NewTopic(topic_name="by-key", configs={"commit.protocol": "paxos", "commit.order": "key"})
    await admin.create_topics([by_key])
    configs = {config.name: config for config in await admin.describe_configs("by-key")}
    assert (configs["commit.order"].value, configs["commit.order"].is_read_only) == ("key", True)
    await admin.alter_configs("by-key", {"commit.hole.span": "16"})
    with pytest.raises(InvalidRequest, match="must be a whole number from 1 to 4096"):
        await admin.alter_configs("by-key", {"commit.hole.span": "5000"})
    with pytest.raises(InvalidRequest, match=r"commit\.order is fixed when a topic is created"):
        await admin.alter_configs("by-key", {"commit.order": "none"})
    with pytest.raises(InvalidRequest, match=r"only topics with commit\.protocol=paxos have it"):
        await admin.create_topic("in-sync", configs={"commit.protocol": "isr", "commit.order": "key"})


async def test_the_cluster_and_its_brokers(cluster: LocalCluster, admin: AdminClient) -> None:
    described = await admin.describe_cluster()
    assert (described.cluster_id, described.controller_id) == (cluster.cluster_id, 1)
    [broker] = await admin.list_brokers()
    assert described.brokers == (broker,)
    assert broker == await admin.describe_broker(1)
    assert (broker.address, broker.is_controller, broker.is_fenced) == (cluster.bootstrap, True, False)
    unreachable = msgspec.structs.replace(broker, broker_id=9, port=1)
    states = await admin.broker_states([broker, unreachable])
    assert states == {1: BrokerState(described.metadata_position, 0, clock_is_off=False), 9: None}
    names = {config.name for config in await admin.describe_broker_configs(1)}
    assert {"node.id", "log.dir"} <= names
    with pytest.raises(NotFound):
        await admin.describe_broker_configs(9)
    with pytest.raises(NotFound, match="there is no broker 9"):
        await admin.describe_broker(9)
    with pytest.raises(NotFound, match="there is no broker 9"):
        await admin.remove_broker(9)
    with pytest.raises(InvalidRequest, match="the only one of its cluster"):
        await admin.remove_broker(1)


async def test_offsets_of_many_partitions_at_once(cluster: LocalCluster, admin: AdminClient, new_topic: Any) -> None:
    topic = await new_topic(partitions=3)
    async with Producer(cluster.bootstrap) as producer:
        for number in range(3):
            await producer.send(topic, b"x", partition=1, timestamp_ms=1000 * (number + 1))
    partitions = [TopicPartition(topic, number) for number in range(4)]
    found = await admin.list_offsets(partitions)
    assert list(found) == partitions
    assert [found[partition].extent() for partition in partitions[:3]] == [(0, 0), (0, 3), (0, 0)]
    assert found[partitions[3]].error is not None
    at_time = await admin.list_offsets({partitions[1]: 1500, partitions[0]: 0})
    assert [(it.offset, it.timestamp) for it in at_time.values()] == [(1, 2000), (None, None)]


async def test_records_are_deleted_up_to_an_offset(cluster: LocalCluster, admin: AdminClient, topic: str) -> None:
    async with Producer(cluster.bootstrap) as producer:
        await (await producer.send_batch(topic, [b"a", b"b", b"c"]))
    for _ in range(2):
        await admin.delete_records(topic, 0, 2)
    (found,) = (await admin.list_offsets([TopicPartition(topic, 0)])).values()
    assert found.extent() == (2, 3)
    with pytest.raises(OffsetOutOfRange):
        await admin.delete_records(topic, 0, 4)


async def test_a_closed_client_says_so(cluster: LocalCluster) -> None:
    admin = AdminClient(cluster.bootstrap)
    with pytest.raises(ClientClosed):
        await admin.list_topics()
    await admin.start()
    await admin.stop()
    await admin.stop()
    with pytest.raises(ClientClosed):
        await admin.list_topics()


async def test_a_group_is_watched_and_put_back_by_an_hour(
    admin: AdminClient, cluster: LocalCluster, topic: str
) -> None:
    group = f"of-{topic}"
    async with Producer(cluster.bootstrap) as producer:
        for age_s in (7200, 60, 1):
            await producer.send(topic, b"%d" % age_s, timestamp_ms=int((time.time() - age_s) * 1000))
    reader = Consumer(
        topic, bootstrap_servers=cluster.bootstrap, group_id=group, auto_offset_reset="earliest", client_id="app"
    )
    async with reader:
        while (await reader.getone()).offset < 1:
            pass
        await reader.commit()
        assert group in [found.consumer_group_id for found in await admin.list_groups()]
        described = await admin.describe_group(group)
        assert (described.state, described.members_count, described.partition_assignor) == ("STABLE", 1, "uniform")
        (member,) = described.consumers
        assert (member.client_id, member.owned) == ("app", (TopicOwned(topic, (0,)),))
        (lag,) = await admin.group_lags(group)
        assert (lag.current_offset, lag.log_end_offset, lag.lag, lag.consumer_id) == (2, 3, 1, member.consumer_id)
        with pytest.raises(GroupNotEmpty, match="stop its consumers first"):
            await admin.reset_group(group, "earliest")
        with pytest.raises(GroupNotEmpty):
            await admin.delete_group(group)
    planned = await admin.reset_group(group, "duration", duration_ms=3_600_000, validate_only=True)
    assert planned == [OffsetReset(topic, 0, 2, 1)]
    assert await admin.reset_group(group, "duration", duration_ms=3_600_000, topics={topic: [0]}) == planned
    async with Consumer(topic, bootstrap_servers=cluster.bootstrap, group_id=group) as reader:
        assert (await reader.getone()).value == b"60"
    await admin.delete_group(group)
    with pytest.raises(UnknownGroup):
        await admin.describe_group(group)
    with pytest.raises(UnknownGroup):
        await admin.group_lags(group)
