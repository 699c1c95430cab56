"""POST .../topics/{topic}/records: a stream of records in, a stream of receipts out, on one connection (REST v3).

Full duplex: receipts are returned in the order of the records while the body is still open. Two loops share a bounded
window. The reader splits the body into objects and decodes them into records; the appender takes all records in the
window, appends them as one batch per partition, and writes the receipts. So one group of records is being appended
while the next one gathers: many records sent at once share a batch and its fsync, a single record waits for no other,
the order is kept without bookkeeping, and a client that sends faster than the disk writes is slowed down by TCP.

A record that is valid JSON but invalid otherwise (type, base64, an unknown field) gets an error receipt, and the stream
goes on. Bytes that are not a JSON object end the stream, because the next record's beginning is unknown: their receipt
is the last one, and the connection is closed. An error before the first receipt is an ordinary error answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from tidelog.broker.http import params, produce
from tidelog.broker.http.answers import encode, open_stream, send_piece
from tidelog.broker.http.body import check_encoding, invite_body
from tidelog.broker.http.call import Call
from tidelog.broker.http.context import Context
from tidelog.broker.http.idempotency import refuse_key
from tidelog.broker.http.json_body import NotJson, RecordV3, decode_body
from tidelog.broker.http.json_text import ObjectCutter
from tidelog.broker.http.media import JSON_TYPE, check_document
from tidelog.broker.http.records_v3 import failure_of, receipt_of, record_of
from tidelog.broker.http.stream_window import ITEM_OVERHEAD_BYTES, Arrived, Window
from tidelog.model.batch_header import HEADER_BYTES, RecordBatch
from tidelog.model.cluster import Topic
from tidelog.model.errors import InvalidRequest, RequestTimeout, ShuttingDown, TidelogError, TooLarge, UnprocessableBody
from tidelog.model.steps import Meter, Steps

if TYPE_CHECKING:
    from tidelog.broker.face.partitions import ProduceReceipt

HTTP_SERVER_ERROR: Final = 500
_RECEIPT_END: Final = b"\r\n"


async def produce_stream(context: Context, call: Call) -> web.StreamResponse:
    """Produces a stream of records: JSON objects in, receipts out."""
    cluster_id = context.face.cluster.cluster_id
    topic = context.face.cluster.topic(call.topic_name())
    check_document(call.request)
    check_encoding(call.request)
    refuse_key(call.request, "cannot be honoured on a stream: use records:batch")
    stream = RecordStream(context, call, topic, cluster_id, params.acks(call.query))
    await invite_body(call.request)
    return await stream.run()


class RecordStream:
    """A streamed produce request: one task reads records, another appends them and sends receipts."""

    def __init__(self, context: Context, call: Call, topic: Topic, cluster_id: str, acks: int) -> None:
        self._context = context
        self._call = call
        self._topic = topic
        self._cluster_id = cluster_id
        self._acks = acks
        self._placer = produce.Placer(context, topic)
        self._window = Window(context.limits.stream_window_bytes)
        self._response = web.StreamResponse(headers={"Content-Type": JSON_TYPE})
        self._cutter = ObjectCutter(context.limits.json_bytes_max)
        self._arrived = 0
        self._pending_bytes = 0
        """Bytes of records that have arrived and are not answered yet."""

    async def run(self) -> web.StreamResponse:
        """Serves the stream to its end. Raises errors that occur before the first receipt, for an ordinary error
        answer.
        """
        appender = asyncio.create_task(self._append_all())
        reader = asyncio.create_task(self._read_all())
        try:
            await asyncio.wait((appender, reader), return_when=asyncio.FIRST_EXCEPTION)
            if appender.done():  # it ends before the reader only by an error
                return await appender
            await reader
            return await appender
        finally:
            await _end(reader)
            await _end(appender)

    # -- reading -------------------------------------------------------------------------------------------------

    async def _read_all(self) -> None:
        """Reads records to the end of the body, or to an error, which becomes the last receipt."""
        try:
            await self._read_objects()
        except TidelogError as error:
            if not self._arrived:
                raise
            await self._window.put(Arrived(0, error=error))
            self._response.force_close()
        self._window.close()

    async def _read_objects(self) -> None:
        cutter, meter = self._cutter, Meter()
        while chunk := await self._next_chunk():
            self._call.received_bytes += len(chunk)
            self._take(len(chunk))
            if self._call.share is not None:
                await self._context.held_up(self._call.share.take_on(len(chunk)))
            cutter.add(chunk)
            while (text := cutter.next_object()) is not None:
                self._take(ITEM_OVERHEAD_BYTES)
                item = self._read_record(text)
                self._arrived += 1
                self._pending_bytes += item.size
                await self._window.put(item)
                if meter.is_over(1, produce.KEY_COST * len(text)):
                    await self._context.face.work.turn()
            self._give_back_rest()
        if not cutter.is_between_objects:
            raise UnprocessableBody("the body ends within a JSON object")
        if not self._arrived:
            raise UnprocessableBody("Payload error. Request body is empty. Data is required.")

    def _take(self, size: int) -> None:
        """Takes bytes from the memory budget for request bodies. Raises `Overloaded` if too few are left."""
        self._context.admission.bodies.take(size)
        self._call.body_bytes += size

    def _give_back_rest(self) -> None:
        """Gives back the bytes of the memory budget that are no longer needed: all but those of records without a
        receipt and of a record that has not arrived completely.
        """
        surplus = self._call.body_bytes - self._pending_bytes - self._cutter.bytes_held
        self._context.admission.bodies.give_back(surplus)
        self._call.body_bytes -= surplus

    async def _next_chunk(self) -> bytes:
        """Returns the next bytes of the body; empty at its end. A body of declared length has the deadline of ordinary
        bodies. Raises `InvalidRequest`, `ShuttingDown`, `RequestTimeout`.
        """
        limits = self._context.limits
        now_s = asyncio.get_running_loop().time()
        if "Content-Length" in self._call.request.headers:
            deadline_s = self._call.started_s + limits.body_timeout_s
        else:
            deadline_s = min(now_s + limits.stream_idle_s, self._call.started_s + limits.stream_duration_s)
        async with self._context.admission.waits.until(deadline_s):
            try:
                return await self._call.request.content.readany()
            except web.RequestPayloadError:
                raise InvalidRequest("the body is not correctly chunked") from None
        if self._context.admission.waits.is_ended:
            raise ShuttingDown("this broker is shutting down; go on with another one")
        raise RequestTimeout("no more records came in time, or the stream was open for longer than allowed")

    def _read_record(self, text: bytes) -> Arrived:
        """Decodes the JSON text of one record. An error becomes the record's receipt, except `NotJson`, which is raised
        and ends the stream.
        """
        size = len(text) + ITEM_OVERHEAD_BYTES
        try:
            sent = decode_body(RecordV3, text)
            record = record_of(sent, self._context.face.clock.wall_ms())
            produce.check_record(self._context.limits, record)
            return Arrived(size, sent, record, self._placer.partition_of(record.key, sent.partition_id))
        except NotJson:
            raise
        except TidelogError as error:
            return Arrived(size, error=error)

    # -- appending -----------------------------------------------------------------------------------------------

    async def _append_all(self) -> web.StreamResponse:
        while items := await self._window.take():
            receipts = await self._append(items)
            if not self._call.is_open:
                await open_stream(self._call, self._response)
            await send_piece(self._context, self._call, self._response, receipts)
            self._pending_bytes -= sum(item.size for item in items)
            self._give_back_rest()
        return self._response

    async def _append(self, items: list[Arrived]) -> bytes:
        """Appends a group of records and returns their receipts. Raises an error that applies to the whole request."""
        groups: dict[int, list[Arrived]] = {}
        for item in items:
            if item.record is not None:
                groups.setdefault(item.partition, []).append(item)
        work = self._context.face.work
        batches = {partition: await work.finish(self._pack(group)) for partition, group in groups.items()}
        batches = {partition: packed for partition, packed in batches.items() if packed}
        now_s = asyncio.get_running_loop().time()
        timeout_s = self._call.duration_s(self._context, "timeout_ms", self._context.limits.request_timeout_ms_max)
        terms = produce.Terms(self._acks, now_s + timeout_s)
        outcomes = await produce.append(self._context, self._topic, batches, terms) if batches else {}
        self._refuse_if_all_failed(items, outcomes)
        return b"".join(part for receipt in self._receipts(items, outcomes) for part in (receipt, _RECEIPT_END))

    def _pack(self, group: list[Arrived]) -> Steps[list[RecordBatch]]:
        """Returns the records of one partition in as few batches as `max.message.bytes` allows; a record that is too
        large alone gets its error instead.
        """
        config = produce.config_of(self._context, self._topic)
        batches: list[RecordBatch] = []
        for part in _parts(group, config.max_message_bytes):
            try:
                records = [item.record for item in part if item.record is not None]
                batches.append((yield from produce.batch_of(config, records)))
            except TooLarge as error:
                for item in part:
                    item.error, item.record = error, None
        return batches

    def _refuse_if_all_failed(self, items: list[Arrived], outcomes: dict[int, ProduceReceipt | TidelogError]) -> None:
        """Raises the common error if all records of the complete request failed by the broker's fault (5xx) and no
        receipt was sent yet.
        """
        if self._call.is_open or not self._window.is_closed or len(items) != self._arrived or not outcomes:
            return
        if any(item.error is not None for item in items):
            return
        error = produce.common_error(list(outcomes.values()))
        if error is not None and error.status >= HTTP_SERVER_ERROR:
            raise error

    def _receipts(self, items: list[Arrived], outcomes: dict[int, ProduceReceipt | TidelogError]) -> Iterator[bytes]:
        numbers: dict[int, int] = {}
        for item in items:
            if item.record is None or item.sent is None:
                assert item.error is not None
                yield encode(failure_of(item.error))
                continue
            outcome = outcomes[item.partition]
            slot = produce.Slot(item.partition, numbers.get(item.partition, 0))
            numbers[item.partition] = slot.number + 1
            if isinstance(outcome, TidelogError):
                yield encode(failure_of(outcome))
            else:
                yield encode(receipt_of(self._cluster_id, self._topic.name, item.sent, item.record, slot, outcome))


def _parts(group: list[Arrived], batch_bytes_max: int) -> Iterator[list[Arrived]]:
    """Splits the records of one partition into parts, each of which surely fits into a batch of `batch_bytes_max`; a
    record that may not fit is alone in its part.
    """
    room = batch_bytes_max - batch_bytes_max // 64 - HEADER_BYTES  # codecs add a little to what they cannot compress
    part: list[Arrived] = []
    size = 0
    for item in group:
        assert item.record is not None
        stored = produce.stored_bytes_max(item.record)
        if part and size + stored > room:
            yield part
            part, size = [], 0
        part.append(item)
        size += stored
    yield part


async def _end(task: asyncio.Task[Any]) -> None:
    """Cancels a task and waits for its end, dropping its result or error."""
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled():
        task.exception()
