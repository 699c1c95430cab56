"""Raw record batches, in and out: as Kafka's producers encode them and its consumers decode them, without conversion.

POST appends the batches of the body as they are; only their 61-byte headers and checksums are checked. GET returns
whole batches from the one that contains `offset` on, up to the high watermark: once, waiting for data if asked to, or,
with `to`, as one streamed answer for a whole range.
"""

from __future__ import annotations

from aiohttp import web
from msgspec import Struct, structs

from tidelog.broker.face.partitions import EarlyBatch, EarlyReader, FetchedBatches, ReadHandle
from tidelog.broker.http import params
from tidelog.broker.http.answers import cut, json_answer, no_content, open_stream, send_parts, send_piece
from tidelog.broker.http.body import read_batches
from tidelog.broker.http.call import Call
from tidelog.broker.http.context import Context
from tidelog.broker.http.early_reads import early_reader
from tidelog.broker.http.idempotency import HEADER, keyed_request
from tidelog.broker.http.media import BATCHES_TYPE, check_batches
from tidelog.broker.http.produce import refuse_other_content
from tidelog.broker.http.reading import position_headers, readable_partition, start_offset, wait_for_data
from tidelog.model.batch_header import RecordBatch, iter_batches, split_batches
from tidelog.model.cluster import TOTAL
from tidelog.model.errors import DamagedBatch, InvalidRequest, TidelogError, UnprocessableBody
from tidelog.model.ids import NO_PRODUCER
from tidelog.model.losses import LostRanges
from tidelog.model.lost_ranges import LOST_TOLD_MAX
from tidelog.model.ports import Buffer


class BatchOffsets(Struct, frozen=True):
    """First and last offset of a batch; null if it is a duplicate whose offsets are not remembered any more."""

    base_offset: int | None
    last_offset: int | None


class BatchesReceipt(Struct, frozen=True):
    """The offsets of the batches of one request, with the leader epoch, the acknowledging brokers and the
    durability.
    """

    topic: str
    partition: int
    batches: list[BatchOffsets]
    leader_epoch: int
    acked_by: list[int]
    durability: str


async def post_batches(context: Context, call: Call) -> web.StreamResponse:
    """Appends raw record batches to a partition."""
    partition = context.face.partitions.handle(call.topic_name(), call.partition_number())
    check_batches(call.request)
    acks = params.acks(call.query)
    deadline_s = call.deadline_s(context)
    expected_end = None
    if "expected_end_offset" in call.query:
        expected_end = params.integer("expected_end_offset", call.query["expected_end_offset"])
    body = await read_batches(context, call)
    batches = split_batches(body, batch_bytes_max=partition.config.max_message_bytes)
    keyed = None
    if HEADER in call.request.headers:
        keyed = keyed_request(call.request, partition.topic_id, str(partition.partition), body)
        _check_keyed(batches, context.limits.keyed_batches_max)
        await refuse_other_content(context, context.face.cluster.topic(partition.topic), keyed)
    receipt = await partition.produce(
        batches, acks=acks, deadline_s=deadline_s, idempotency=keyed, expected_end=expected_end
    )
    if acks == 0:
        return no_content()
    offsets = [BatchOffsets(base_offset, last_offset) for base_offset, last_offset in receipt.batches]
    return json_answer(
        BatchesReceipt(
            partition.topic,
            partition.partition,
            offsets,
            receipt.leader_epoch,
            list(receipt.acked_by),
            receipt.durability,
        )
    )


def _check_keyed(batches: list[RecordBatch], batches_max: int) -> None:
    """Checks the batches of a request with an `Idempotency-Key`. Raises `UnprocessableBody` for more than
    `batches_max`, which is as many as a partition remembers under one key, and `InvalidRequest` for batches that have a
    producer id.
    """
    if len(batches) > batches_max:
        raise UnprocessableBody(f"{len(batches)} batches under one {HEADER}: at most {batches_max} can be remembered")
    if any(batch.header.producer_id != NO_PRODUCER for batch in batches):
        raise InvalidRequest(f"batches with a producer id are idempotent already: leave {HEADER} out")


async def get_batches(context: Context, call: Call) -> web.StreamResponse:
    """Reads raw record batches: once, with a wait for data, or a whole range as a stream."""
    partition = readable_partition(context, call)
    early = early_reader(context, call)
    query = call.query
    limits = context.limits
    offset = await start_offset(partition, query)
    if "to" in query:
        return await _stream_range(context, call, partition, offset)
    bytes_max = params.optional_integer(query, "max_bytes", limits.fetch_bytes_default)
    bytes_min = params.optional_integer(query, "min_bytes", 1)
    wait_s = call.duration_s(context, "wait_ms", 0)
    bytes_max = min(bytes_max, limits.fetch_bytes_max)
    fetched, released = await _read(context, partition, early, offset, bytes_max)
    if wait_s and len(fetched.data) < bytes_min and not released:
        bytes_min = min(bytes_min, bytes_max)
        await wait_for_data(context, partition, offset, bytes_min, call.started_s + wait_s, early)
        fetched, released = await _read(context, partition, early, offset, bytes_max)
    parts = [fetched.data, *(batch.batch.data for batch in released)]
    headers = position_headers(call, fetched, [batch.range for batch in released])
    return await send_parts(context, call, parts, headers, BATCHES_TYPE)


async def _read(
    context: Context, partition: ReadHandle, early: EarlyReader | None, offset: int, bytes_max: int
) -> tuple[FetchedBatches, list[EarlyBatch]]:
    """Returns committed batches and, for an early reader, the released ones behind them."""
    fetched = await context.timed(context.stages.fetch_read, partition.read(offset, bytes_max=bytes_max))
    return fetched, [] if early is None else early.batches(fetched, bytes_max)


async def _stream_range(context: Context, call: Call, partition: ReadHandle, offset: int) -> web.StreamResponse:
    """Streams the batches from the one with `offset` to the one with `to - 1`, or to the high watermark of the first
    read, as one chunked answer. It ends sooner if the range has more accepted losses than the headers can name.
    """
    conflicting = [*filter(call.query.__contains__, ("max_bytes", "min_bytes", "wait_ms"))]
    if call.query.get("order", TOTAL) != TOTAL:
        conflicting.append("order")
    if conflicting:
        raise InvalidRequest(f"{conflicting[0]} makes no sense with to: a range is sent whole, and at once")
    end = params.integer("to", call.query["to"])
    piece_bytes, read = context.limits.range_piece_bytes, context.stages.fetch_read
    context.admission.answers.take(piece_bytes)
    call.answer_bytes += piece_bytes
    fetched = await context.timed(read, partition.read(offset, bytes_max=piece_bytes))
    end = min(end, fetched.high_watermark)
    announced = _lost_in(context, call, offset, end)
    if len(announced) > LOST_TOLD_MAX:
        end = announced[LOST_TOLD_MAX][0]
        announced = announced[:LOST_TOLD_MAX]
    fetched = structs.replace(fetched, lost=tuple(dict.fromkeys((*fetched.lost, *announced))))
    piece = _before(fetched, end)
    if call.share is not None:
        await call.share.send(len(piece))
    response = web.StreamResponse(headers={"Content-Type": BATCHES_TYPE, **position_headers(call, fetched)})
    await open_stream(call, response)
    try:
        while offset < end and fetched.next_offset > offset:
            sending = send_piece(context, call, response, piece)
            await context.timed(context.stages.fetch_send, sending)
            offset = fetched.next_offset
            if offset < end:
                context.admission.refuse_if_ending()
                fetched = await context.timed(read, partition.read(offset, bytes_max=piece_bytes))
                if not set(fetched.lost) <= set(announced):
                    raise DamagedBatch("what was given up since the answer began cannot be told in its headers")
                piece = _before(fetched, end)
                if call.share is not None:
                    await context.held_up(call.share.send_more(len(piece)))
    except TidelogError:
        cut(call)  # a range that stops early, or has a hole that was not told, must not look complete
        raise ConnectionAbortedError("the range cannot be read to its end") from None
    return response


def _lost_in(context: Context, call: Call, offset: int, end: int) -> list[tuple[int, int]]:
    """Returns the accepted losses (offset ranges that an operator declared lost) between two offsets, clipped to
    them.
    """
    partition = context.face.cluster.topic(call.topic_name()).partitions[call.partition_number()]
    overlaps = ((max(start, offset), min(stop, end)) for start, stop in LostRanges(partition.losses))
    return [(start, stop) for start, stop in overlaps if start < stop]


def _before(fetched: FetchedBatches, end: int) -> Buffer:
    """Returns the batches whose base offset is below `end`."""
    if fetched.next_offset <= end:
        return fetched.data
    size = 0
    for batch in iter_batches(fetched.data):
        if batch.header.base_offset >= end:
            break
        size += len(batch.data)
    return memoryview(fetched.data)[:size]
