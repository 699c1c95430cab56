"""REST v3: partitions, their offsets and their replicas; and the deletion of the records at the head of a partition
(Kafka's DeleteRecords), which Confluent's REST Proxy does not have.
"""

from __future__ import annotations

from aiohttp import web
from msgspec import UNSET, UnsetType

from tidelog.broker.http import params
from tidelog.broker.http.answers import json_answer, no_content
from tidelog.broker.http.body import read_body
from tidelog.broker.http.call import Call
from tidelog.broker.http.context import Context
from tidelog.broker.http.envelope import Links, PartitionResource, Related
from tidelog.broker.http.json_body import Body, OffsetNumber, decode_body
from tidelog.broker.http.media import check_document
from tidelog.broker.http.topics_v2 import partition_of
from tidelog.model.cluster import PartitionInfo, Topic
from tidelog.model.errors import InvalidRequest, NotFound
from tidelog.model.ids import NodeId


class PartitionV3(PartitionResource, frozen=True):
    """A partition; `leader` links to the leader's replica, and is left out if there is none."""

    replicas: Related
    reassignment: Related
    leader_epoch: int
    leader: Related | UnsetType = UNSET


class PartitionOffsetV3(PartitionResource, frozen=True):
    """The readable range of a partition; `latest_offset` is the high watermark."""

    offset_type: str
    earliest_offset: int
    latest_offset: int


class ReplicaV3(PartitionResource, frozen=True):
    """A replica of a partition on a broker."""

    broker_id: int
    is_leader: bool
    is_in_sync: bool
    broker: Related


class DeletionAsked(Body):
    """The body of a deletion: `before_offset` becomes the partition's log start offset."""

    before_offset: OffsetNumber


async def list_partitions(context: Context, call: Call) -> web.StreamResponse:
    """Lists the partitions of a topic."""
    links = Links(context, call)
    topic = context.face.cluster.topic(call.topic_name())
    data = [_partition(links, topic, partition) for partition in topic.partitions]
    return json_answer(links.list_of("KafkaPartition", data, "topics", topic.name, "partitions"))


async def get_partition(context: Context, call: Call) -> web.StreamResponse:
    """Returns a partition."""
    links = Links(context, call)
    return json_answer(_partition(links, *partition_of(context, call)))


async def get_offset(context: Context, call: Call) -> web.StreamResponse:
    """Returns the earliest offset and the high watermark of a partition."""
    links = Links(context, call)
    offset_type = call.query.get("offset_type", "earliest_and_latest")
    if offset_type != "earliest_and_latest":
        raise InvalidRequest(f"offset_type must be earliest_and_latest, not {params.shown(offset_type)}")
    partition = context.face.partitions.handle(call.topic_name(), call.partition_number())
    extent = await partition.extent()
    answer = PartitionOffsetV3(
        *links.resource("KafkaPartitionOffset", "topics", partition.topic, "partitions", partition.partition, "offset"),
        partition.topic,
        partition.partition,
        offset_type,
        extent.log_start_offset,
        extent.high_watermark,
    )
    return json_answer(answer)


async def delete_records(context: Context, call: Call) -> web.StreamResponse:
    """Deletes the committed records below an offset. May be repeated."""
    partition = context.face.partitions.handle(call.topic_name(), call.partition_number())
    check_document(call.request)
    deadline_s = call.deadline_s(context)
    deletion = decode_body(DeletionAsked, await read_body(context, call, context.limits.json_bytes_max))
    await partition.delete_records(deletion.before_offset, deadline_s=deadline_s)
    return no_content()


async def list_replicas(context: Context, call: Call) -> web.StreamResponse:
    """Lists the replicas of a partition."""
    links = Links(context, call)
    topic, partition = partition_of(context, call)
    data = [replica_shown(links, topic, partition, node_id) for node_id in partition.replicas]
    return json_answer(
        links.list_of("KafkaReplica", data, "topics", topic.name, "partitions", partition.partition, "replicas")
    )


async def get_replica(context: Context, call: Call) -> web.StreamResponse:
    """Returns a replica of a partition."""
    return json_answer(replica_shown(Links(context, call), *replica_of(context, call)))


def replica_of(context: Context, call: Call) -> tuple[Topic, PartitionInfo, NodeId]:
    """Returns the topic, partition and broker of the path. Raises `UnknownTopic`, `UnknownPartition`, or `NotFound` if
    the broker has no replica.
    """
    topic, partition = partition_of(context, call)
    node_id = NodeId(params.node_number(call.path["broker_id"]))
    if node_id not in partition.replicas:
        raise NotFound(f"broker {node_id} has no replica of {topic.name}-{partition.partition}")
    return topic, partition, node_id


def replica_shown(links: Links, topic: Topic, partition: PartitionInfo, node_id: NodeId) -> ReplicaV3:
    """Returns a replica as a REST v3 resource."""
    return ReplicaV3(
        *links.resource("KafkaReplica", "topics", topic.name, "partitions", partition.partition, "replicas", node_id),
        topic.name,
        partition.partition,
        node_id,
        node_id == partition.leader,
        node_id in partition.isr,
        links.related("brokers", node_id),
    )


def _partition(links: Links, topic: Topic, partition: PartitionInfo) -> PartitionV3:
    segments = ("topics", topic.name, "partitions", partition.partition)
    return PartitionV3(
        *links.resource("KafkaPartition", *segments),
        topic.name,
        partition.partition,
        links.related(*segments, "replicas"),
        links.related(*segments, "reassignment"),
        partition.leader_epoch,
        links.related(*segments, "replicas", partition.leader) if partition.leader >= 0 else UNSET,
    )
