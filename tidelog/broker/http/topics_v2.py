"""The reading side of REST v2: liveness, broker and topic names, partitions, offsets.

The shapes are those of Confluent's REST Proxy; partitions have `leader_epoch` in addition, and `leader` is -1 if there
is none.
"""

from __future__ import annotations

from aiohttp import web
from msgspec import Struct

from tidelog.broker.http.answers import json_answer
from tidelog.broker.http.body import read_body
from tidelog.broker.http.call import Call
from tidelog.broker.http.context import Context
from tidelog.broker.http.produce import check_partition
from tidelog.config.describe import describe_topic
from tidelog.model.cluster import PartitionInfo, Topic

ANSWER_TYPE = "application/vnd.kafka.v2+json"


class Nothing(Struct, frozen=True):
    """An empty JSON object."""


class BrokersV2(Struct, frozen=True):
    """The node ids of the live brokers."""

    brokers: list[int]


class ReplicaV2(Struct, frozen=True):
    """A replica of a partition: its broker, whether it leads, and whether it is in sync."""

    broker: int
    leader: bool
    in_sync: bool


class PartitionV2(Struct, frozen=True):
    """A partition: its leader, replicas and leader epoch."""

    partition: int
    leader: int
    replicas: list[ReplicaV2]
    leader_epoch: int


class TopicV2(Struct, frozen=True):
    """A topic, with all its settings in force."""

    name: str
    configs: dict[str, str | None]
    partitions: list[PartitionV2]
    topic_id: str


class OffsetsV2(Struct, frozen=True):
    """The readable range of a partition; `end_offset` is the high watermark."""

    beginning_offset: int
    end_offset: int


async def get_root(_context: Context, _call: Call) -> web.StreamResponse:
    """Returns an empty object: the broker is alive."""
    return json_answer(Nothing(), content_type=ANSWER_TYPE)


async def post_root(context: Context, call: Call) -> web.StreamResponse:
    """Returns an empty object, whatever the body: some clients test here whether bodies are accepted."""
    await read_body(context, call, context.limits.json_bytes_max, is_optional=True)
    return json_answer(Nothing(), content_type=ANSWER_TYPE)


async def list_brokers(context: Context, _call: Call) -> web.StreamResponse:
    """Lists the node ids of the live brokers."""
    live: list[int] = [broker.node_id for broker in context.face.cluster.image.live_brokers]
    return json_answer(BrokersV2(live), content_type=ANSWER_TYPE)


async def list_topics(context: Context, call: Call) -> web.StreamResponse:
    """Lists the names of all topics that the caller may see."""
    names = context.visible(call, "Topic", sorted(context.face.cluster.image.topics))
    return json_answer(names, content_type=ANSWER_TYPE)


async def get_topic(context: Context, call: Call) -> web.StreamResponse:
    """Returns a topic: its settings in force and its partitions."""
    topic = context.face.cluster.topic(call.topic_name())
    entries = describe_topic(
        context.face.cluster.config, topic.configs, replication_factor=len(topic.partitions[0].replicas)
    )
    configs = {entry.name: entry.value for entry in entries}
    partitions = [_shown(partition) for partition in topic.partitions]
    return json_answer(TopicV2(topic.name, configs, partitions, topic.topic_id), content_type=ANSWER_TYPE)


async def list_partitions(context: Context, call: Call) -> web.StreamResponse:
    """Lists the partitions of a topic."""
    topic = context.face.cluster.topic(call.topic_name())
    return json_answer([_shown(partition) for partition in topic.partitions], content_type=ANSWER_TYPE)


async def get_partition(context: Context, call: Call) -> web.StreamResponse:
    """Returns a partition of a topic."""
    _, partition = partition_of(context, call)
    return json_answer(_shown(partition), content_type=ANSWER_TYPE)


async def get_offsets(context: Context, call: Call) -> web.StreamResponse:
    """Returns the beginning offset and the high watermark of a partition."""
    extent = await context.face.partitions.handle(call.topic_name(), call.partition_number()).extent()
    return json_answer(OffsetsV2(extent.log_start_offset, extent.high_watermark), content_type=ANSWER_TYPE)


def partition_of(context: Context, call: Call) -> tuple[Topic, PartitionInfo]:
    """Returns the topic and the partition that the request's path names. Raises `UnknownTopic`, or `UnknownPartition`
    if the topic does not have it.
    """
    topic = context.face.cluster.topic(call.topic_name())
    number = call.partition_number()
    check_partition(topic, number)
    return topic, topic.partitions[number]


def _shown(partition: PartitionInfo) -> PartitionV2:
    replicas = [
        ReplicaV2(node_id, node_id == partition.leader, node_id in partition.isr) for node_id in partition.replicas
    ]
    return PartitionV2(partition.partition, partition.leader, replicas, partition.leader_epoch)
