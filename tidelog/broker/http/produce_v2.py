"""POST /topics/{topic} and POST /topics/{topic}/partitions/{partition}: records in one JSON document (REST v2).

Follows Confluent's REST Proxy, with Strimzi's `headers` and `timestamp` on records, and receipts with the leader epoch,
the brokers that hold the records, and the durability.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiohttp import web
from msgspec import Struct

from tidelog.broker.http import params, produce
from tidelog.broker.http.answers import json_answer, no_content
from tidelog.broker.http.body import read_body
from tidelog.broker.http.call import Call
from tidelog.broker.http.context import Context
from tidelog.broker.http.idempotency import keyed_request
from tidelog.broker.http.json_body import (
    BinaryRecord,
    BinaryRecords,
    JsonRecord,
    JsonRecords,
    TextRecord,
    TextRecords,
    decode_items,
    stored_json,
)
from tidelog.broker.http.media import Embedded, embedded_sent
from tidelog.model.batch_header import RecordBatch
from tidelog.model.errors import InvalidRequest, TidelogError, UnprocessableBody
from tidelog.model.records import Record
from tidelog.model.steps import Steps, mapped_slices

if TYPE_CHECKING:
    from tidelog.broker.face.partitions import ProduceReceipt

ANSWER_TYPE: Final = "application/vnd.kafka.v2+json"


class OffsetReceipt(Struct, frozen=True):
    """The result of one record; `error_code` is null for a success."""

    partition: int
    offset: int | None
    error_code: int | None = None
    error: str | None = None
    leader_epoch: int | None = None
    acked_by: list[int] | None = None
    durability: str | None = None


class ProducedV2(Struct, frozen=True):
    """The answer to a v2 produce request, with a result for each record in the order of the request."""

    offsets: list[OffsetReceipt]
    key_schema_id: int | None = None
    value_schema_id: int | None = None


async def produce_to_topic(context: Context, call: Call) -> web.StreamResponse:
    """Produces records to a topic."""
    return await _produce(context, call, None)


async def produce_to_partition(context: Context, call: Call) -> web.StreamResponse:
    """Produces records to a partition."""
    return await _produce(context, call, call.partition_number())


async def _produce(context: Context, call: Call, partition: int | None) -> web.StreamResponse:
    topic = context.face.cluster.topic(call.topic_name())
    if partition is not None:
        produce.check_partition(topic, partition)
    embedded = embedded_sent(call.request)
    acks = params.acks(call.query)
    body = await read_body(context, call, context.limits.json_bytes_max)
    keyed = keyed_request(call.request, topic.topic_id, f"{partition} {embedded.name}", body)
    await produce.refuse_other_content(context, topic, keyed)
    grouping = produce.Grouping(context, topic, keyed)
    work = context.face.work
    slots, batches = await work.do(_batches(context, grouping, body, embedded, partition))
    outcomes = await produce.append(context, topic, batches, produce.Terms(acks, call.deadline_s(context), keyed))
    if (error := produce.common_error(list(outcomes.values()))) is not None:
        raise error
    if acks == 0 and not any(isinstance(outcome, TidelogError) for outcome in outcomes.values()):
        return no_content()
    receipts = await work.finish(mapped_slices(lambda slot: _receipt(slot, outcomes[slot.partition]), slots))
    return json_answer(ProducedV2(receipts), content_type=ANSWER_TYPE)


def _batches(
    context: Context, grouping: produce.Grouping, body: bytearray, embedded: Embedded, partition: int | None
) -> Steps[tuple[list[produce.Slot], dict[int, list[RecordBatch]]]]:
    """Returns the batches for the records of a body, and each record's place in them. Raises the first error of any
    record.
    """
    records = yield from decode_records(body, embedded)
    if not 0 < len(records) <= context.limits.entries_max:
        raise UnprocessableBody(f"{len(records)} records: send 1 to {context.limits.entries_max}")
    now_ms = context.face.clock.wall_ms()
    slots: list[produce.Slot] = []
    for sent in records:
        record = record_of(sent, now_ms)
        slots.append(grouping.add(record, _named_partition(partition, sent.partition)))
        if grouping.is_slice_over(len(record.key or b""), len(record.value or b"")):
            yield None
    return slots, (yield from grouping.batches())


def decode_records(
    body: bytearray, embedded: Embedded
) -> Steps[list[BinaryRecord] | list[JsonRecord] | list[TextRecord]]:
    """Returns the records of a v2 body. Raises `InvalidRequest` if it is malformed."""
    match embedded:
        case Embedded.JSON:
            return (yield from decode_items(JsonRecords, "records", JsonRecord, body))
        case Embedded.TEXT:
            return (yield from decode_items(TextRecords, "records", TextRecord, body))
        case Embedded.BINARY:
            return (yield from decode_items(BinaryRecords, "records", BinaryRecord, body))


def record_of(sent: BinaryRecord | JsonRecord | TextRecord, now_ms: int) -> Record:
    """Returns the record as it will be stored."""
    timestamp_ms = now_ms if sent.timestamp is None else sent.timestamp
    headers = tuple((header.key, header.value) for header in sent.headers) if sent.headers else ()
    if isinstance(sent, JsonRecord):
        return Record(timestamp_ms, stored_json(sent.key), stored_json(sent.value), headers)
    if isinstance(sent, TextRecord):
        return Record(timestamp_ms, _stored_text(sent.key), _stored_text(sent.value), headers)
    return Record(timestamp_ms, sent.key, sent.value, headers)


def _stored_text(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _named_partition(in_path: int | None, in_record: int | None) -> int | None:
    if in_path is None:
        return in_record
    if in_record is not None and in_record != in_path:
        raise InvalidRequest(f"a record names partition {in_record}, the path names {in_path}; leave one out")
    return in_path


def _receipt(slot: produce.Slot, outcome: ProduceReceipt | TidelogError) -> OffsetReceipt:
    if isinstance(outcome, TidelogError):
        return OffsetReceipt(slot.partition, None, outcome.code, outcome.message)
    offset = slot.offset(outcome)
    return OffsetReceipt(
        slot.partition, offset, None, None, outcome.leader_epoch, list(outcome.acked_by), outcome.durability
    )
