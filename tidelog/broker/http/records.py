"""GET /topics/{topic}/partitions/{partition}/records: a read that needs no consumer instance and keeps no state.

The path is Redpanda's; additions are a start by timestamp, a wait, and Kafka's rule that a read returns at least one
record if there is one, however small `max_bytes` is. This read opens batches, so its work is bounded: `max_bytes` is at
most 8 MiB, and each batch's decompressed size and each record's size are bounded too; it is done in slices, between
which other requests are served.
"""

from __future__ import annotations

from functools import partial

from aiohttp import web

from tidelog.broker.face.partitions import EarlyReader, FetchedBatches, ReadHandle
from tidelog.broker.face.records import ReadTerms, ShownRecords, read_records, show_early
from tidelog.broker.http import params
from tidelog.broker.http.answers import send_parts
from tidelog.broker.http.call import Call
from tidelog.broker.http.context import Context
from tidelog.broker.http.early_reads import early_reader
from tidelog.broker.http.media import embedded_accepted
from tidelog.broker.http.reading import position_headers, readable_partition, start_offset, wait_for_data
from tidelog.model.errors import FormatMismatch, InvalidRequest


async def get_records(context: Context, call: Call) -> web.StreamResponse:
    """Returns records of a partition, without keeping state for the reader."""
    embedded = embedded_accepted(call.request)
    partition = readable_partition(context, call)
    early = early_reader(context, call)
    query = call.query
    if ("offset" in query) == ("timestamp" in query):
        raise InvalidRequest("say where to read from: offset=NUMBER|earliest|latest, or timestamp=MS, and only one")
    limits = context.limits
    bytes_max = params.optional_integer(query, "max_bytes", limits.fetch_bytes_default)
    bytes_max = min(bytes_max, limits.json_fetch_bytes_max, limits.fetch_bytes_max)
    wait_s = call.duration_s(context, "timeout", 0)
    offset = await _find_start(context, call, partition, wait_s)
    terms = ReadTerms(
        partition.topic,
        partition.partition,
        embedded.form,
        bytes_max,
        limits.decoded_bytes_max,
        limits.record_bytes_max,
    )
    read, reading = context.stages.fetch_read, partial(_read, context, partition, early, offset, terms)
    fetched, shown, ranges = await context.timed(read, reading())
    if not shown and not shown.mismatch and wait_s:
        await wait_for_data(context, partition, fetched.next_offset, 1, call.started_s + wait_s, early)
        fetched, shown, ranges = await context.timed(read, reading())
    if shown.mismatch:
        raise FormatMismatch(shown.mismatch)
    parts = (b"[", *shown.pieces, b"]")
    return await send_parts(context, call, parts, position_headers(call, fetched, ranges), embedded.value)


async def _read(
    context: Context, partition: ReadHandle, early: EarlyReader | None, offset: int, terms: ReadTerms
) -> tuple[FetchedBatches, ShownRecords, list[tuple[int, int]]]:
    """Returns committed records and, for an early reader, the released ones behind them, with the ranges of the
    latter's offsets.
    """
    fetched, shown = await read_records(partition, offset, terms, context.face.work)
    is_cut = bool(shown.mismatch) or 0 <= shown.next_offset < fetched.next_offset
    released = [] if early is None or is_cut else early.batches(fetched, terms.bytes_max)
    return fetched, shown, await context.face.work.do(show_early(shown, released, terms)) if released else []


async def _find_start(context: Context, call: Call, partition: ReadHandle, wait_s: float) -> int:
    """Returns the offset to read from. For a timestamp without such a record it is the high watermark, after another
    look-up at the end of the wait.
    """
    query = call.query
    if "offset" in query:
        return await start_offset(partition, query)
    timestamp_ms = params.integer("timestamp", query["timestamp"])
    record = await partition.offset_for_timestamp(timestamp_ms)
    if record is None and wait_s:
        end = (await partition.extent()).high_watermark
        await wait_for_data(context, partition, end, 1, call.started_s + wait_s)
        record = await partition.offset_for_timestamp(timestamp_ms)
    return (await partition.extent()).high_watermark if record is None else record[0]
