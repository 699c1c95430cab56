"""Two requests of smart clients: the whole cluster metadata in one answer, and the offsets of many partitions in one.

`GET /metadata` is Kafka's Metadata request: partition leaders, and the addresses of brokers. `POST /offsets` is its
ListOffsets, with a wait: a reader of many partitions learns by one request when any of them has grown.
"""

from __future__ import annotations

from aiohttp import web
from msgspec import Raw, Struct

from tidelog.broker.face.partitions import Offsets, PartitionHandle, Partitions
from tidelog.broker.http.answers import json_answer
from tidelog.broker.http.body import read_json
from tidelog.broker.http.call import Call
from tidelog.broker.http.context import Context
from tidelog.broker.http.json_body import Body, Duration, OffsetNumber, PartitionNumber, TimestampMs
from tidelog.broker.http.topic_texts import TopicShown
from tidelog.model.access import Operation
from tidelog.model.cluster import KAFKA, BrokerInfo
from tidelog.model.errors import InvalidRequest, TidelogError, UnprocessableBody
from tidelog.model.names import check_topic_name


class BrokerShown(Struct, frozen=True):
    """A live broker and the address of its HTTP listener. `kafka` is the address, as `host:port`, of its listener for
    Kafka's protocol; null if it has none.
    """

    node_id: int
    host: str
    port: int
    rack: str | None
    kafka: str | None = None


class MetadataShown(Struct, frozen=True):
    """All live brokers, and those of the requested topics that exist."""

    cluster_id: str
    controller_id: int
    brokers: list[BrokerShown]
    topics: list[TopicShown]


class _MetadataAnswer(Struct, frozen=True):
    cluster_id: str
    controller_id: int
    brokers: list[BrokerShown]
    topics: list[Raw]
    """Each topic as JSON, a `TopicShown`."""


class OffsetsAsked(Body):
    """A partition whose offsets are requested: with `timestamp` (ms) also the first offset of that time or later; with
    `high_watermark` the answer waits until the partition's high watermark differs from it.
    """

    topic: str
    partition: PartitionNumber
    timestamp: TimestampMs | None = None
    high_watermark: OffsetNumber | None = None


class OffsetsRequest(Body):
    """The body of `POST /offsets`."""

    partitions: list[OffsetsAsked]
    wait_ms: Duration = 0


class OffsetsShown(Struct, frozen=True):
    """The offsets of one partition, or its error. `offset` and `timestamp` are those of the first record that is not
    older than the requested timestamp; null if there is none, or no timestamp was requested.
    """

    topic: str
    partition: int
    topic_id: str | None = None
    leader: int | None = None
    leader_epoch: int | None = None
    log_start_offset: int | None = None
    high_watermark: int | None = None
    log_end_offset: int | None = None
    offset: int | None = None
    timestamp: int | None = None
    error_code: int | None = None
    message: str | None = None


class OffsetsAnswer(Struct, frozen=True):
    """The offsets of each requested partition, in the order of the request."""

    partitions: list[OffsetsShown]


async def get_metadata(context: Context, call: Call) -> web.StreamResponse:
    """Returns all live brokers, and the leaders of the partitions of topics."""
    image = context.face.cluster.image
    listed = call.query.get("topics")
    if listed is None:
        names = context.visible(call, "Topic", sorted(image.topics))
    else:
        names = [check_topic_name(name) for name in dict.fromkeys(listed.split(",")) if name]
        names = context.visible(call, "Topic", names)
    brokers = [_broker_shown(info) for info in image.live_brokers]
    topics = await context.face.work.do(context.topic_texts.of(image, names))
    return json_answer(_MetadataAnswer(context.face.cluster.cluster_id, image.controller_id, brokers, topics))


def _broker_shown(info: BrokerInfo) -> BrokerShown:
    kafka = info.listeners.get(KAFKA)
    http = info.http
    return BrokerShown(info.node_id, http.host, http.port, info.rack, None if kafka is None else str(kafka))


async def post_offsets(context: Context, call: Call) -> web.StreamResponse:
    """Returns the offsets of many partitions, at once or when one changes."""
    request = await read_json(context, call, OffsetsRequest)
    if not 0 < len(request.partitions) <= context.limits.entries_max:
        raise UnprocessableBody(f"{len(request.partitions)} partitions: ask for 1 to {context.limits.entries_max}")
    partitions = [_find(context, call, query) for query in request.partitions]
    if request.wait_ms:
        await _wait_for_change(context, call, request, partitions)
    return json_answer(OffsetsAnswer(await _describe(context.face.partitions, request.partitions, partitions)))


async def _wait_for_change(
    context: Context, call: Call, request: OffsetsRequest, partitions: list[PartitionHandle | TidelogError]
) -> None:
    """Waits until any partition's high watermark differs from the one in the request, or a partition has an error."""
    if all(query.high_watermark is None for query in request.partitions):
        raise InvalidRequest("wait_ms needs the high_watermark that you know of at least one partition")
    ends: list[tuple[PartitionHandle, int]] = []
    for query, partition in zip(request.partitions, partitions, strict=True):
        if isinstance(partition, TidelogError):
            return
        if query.high_watermark is not None:
            ends.append((partition, query.high_watermark))
    wait_ms = min(request.wait_ms, context.limits.request_timeout_ms_max)
    deadline_s = call.started_s + wait_ms / 1000
    async with context.admission.waits.until(deadline_s):
        await context.face.partitions.wait_for_change(ends, deadline_s)


def _find(context: Context, call: Call, query: OffsetsAsked) -> PartitionHandle | TidelogError:
    try:
        context.require(call, Operation.DESCRIBE, "Topic", [query.topic])
        return context.face.partitions.handle(check_topic_name(query.topic), query.partition)
    except TidelogError as error:
        return error


async def _describe(
    partitions: Partitions, queries: list[OffsetsAsked], handles: list[PartitionHandle | TidelogError]
) -> list[OffsetsShown]:
    questions = [(partition, query.timestamp) for query, partition in zip(queries, handles, strict=True)]
    answers = await partitions.offsets_of(questions)
    return [_shown(*entry) for entry in zip(queries, handles, answers, strict=True)]


def _shown(
    query: OffsetsAsked, partition: PartitionHandle | TidelogError, offsets: Offsets | TidelogError
) -> OffsetsShown:
    if isinstance(offsets, TidelogError):
        return OffsetsShown(query.topic, query.partition, error_code=offsets.code, message=offsets.message)
    assert not isinstance(partition, TidelogError)
    extent = offsets.extent
    offset, timestamp_ms = (None, None) if offsets.record is None else offsets.record
    return OffsetsShown(
        query.topic,
        query.partition,
        partition.topic_id,
        extent.leader,
        extent.leader_epoch,
        extent.log_start_offset,
        extent.high_watermark,
        extent.log_end_offset,
        offset,
        timestamp_ms,
    )
