"""REST v3: verifies one replica, or a broker's other files, while it serves. Not in Kafka."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web
from msgspec import Struct

from tidelog.broker.face.partitions import VerifyFilesQuery, VerifyQuery, VerifyReply
from tidelog.broker.http import params
from tidelog.broker.http.answers import json_answer
from tidelog.broker.http.call import Call
from tidelog.broker.http.clusters_v3 import broker_of
from tidelog.broker.http.context import Context
from tidelog.broker.http.envelope import Links, PartitionResource, Resource
from tidelog.broker.http.partitions_v3 import replica_of
from tidelog.model.cluster import PartitionInfo, Topic
from tidelog.model.ids import OFFSET_MAX, NodeId


class DamagedShown(Struct, frozen=True):
    """Offsets that are damaged on the disk; `end_offset` is exclusive."""

    start_offset: int
    end_offset: int
    reason: str


class BatchShown(Struct, frozen=True):
    """A batch in the replica's catalog (its list of batches with checksums); `digest` is XXH3-128 of all its bytes."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    digest: str


class VerificationV3(PartitionResource, frozen=True):
    """The verified content of a replica from `offset` to `next_offset`. Replicas with equal checksums have the same
    content.
    """

    broker_id: int
    log_start_offset: int
    high_watermark: int
    offset: int
    next_offset: int
    bytes: int
    checksum: str
    damaged: Sequence[DamagedShown]
    batches: Sequence[BatchShown] | None


class CheckedFilesV3(Struct, frozen=True):
    """The check of a journal, a pair of file copies, or the snapshots. `found` is the number of damaged parts, `left`
    the number of those that are still damaged after the repair.
    """

    name: str
    bytes: int
    found: int
    left: int
    error: str | None


class BrokerVerificationV3(Resource, frozen=True):
    """The checked files of a broker besides logs, sorted by name. Unless `is_last`, more follow the last one."""

    broker_id: int
    checked: Sequence[CheckedFilesV3]
    is_last: bool


async def verify_broker(context: Context, call: Call) -> web.StreamResponse:
    """Verifies a broker's files besides logs, from the first name after `after` on."""
    links = Links(context, call)
    node_id = broker_of(context, call).node_id
    query = VerifyFilesQuery(call.query.get("after", ""))
    reply = await context.face.partitions.verify_files(node_id, query)
    checked = [
        CheckedFilesV3(file.name, file.size, file.found, file.left, file.error or None) for file in reply.checked
    ]
    resource = links.resource("KafkaBrokerVerification", "brokers", node_id, "verification")
    return json_answer(BrokerVerificationV3(*resource, node_id, checked, reply.is_last))


async def verify_replica(context: Context, call: Call) -> web.StreamResponse:
    """Verifies a replica from `offset` up to `to`; a long range in part, up to `next_offset` of the answer."""
    links = Links(context, call)
    topic, partition, node_id = replica_of(context, call)
    query = VerifyQuery(
        topic.topic_id,
        partition.partition,
        params.optional_integer(call.query, "offset", 0),
        params.optional_integer(call.query, "to", OFFSET_MAX),
        params.boolean(call.query, "batches") is True,
    )
    reply = await context.face.partitions.verify(node_id, query)
    return json_answer(_shown(links, topic, partition, node_id, query, reply))


def _shown(
    links: Links, topic: Topic, partition: PartitionInfo, node_id: NodeId, query: VerifyQuery, reply: VerifyReply
) -> VerificationV3:
    named = [
        BatchShown(batch.base_offset, batch.next_offset, batch.leader_epoch, batch.digest.hex())
        for batch in reply.batches
    ]
    segments = ("topics", topic.name, "partitions", partition.partition, "replicas", node_id, "verification")
    return VerificationV3(
        *links.resource("KafkaReplicaVerification", *segments),
        topic.name,
        partition.partition,
        node_id,
        reply.log_start_offset,
        reply.high_watermark,
        max(query.offset, reply.log_start_offset),
        reply.next_offset,
        reply.size,
        reply.checksum.hex(),
        [DamagedShown(damage.start, damage.end, damage.reason) for damage in reply.damaged],
        named if query.names_batches else None,
    )
