"""POST .../topics/{topic}/records:batch: up to 10,000 records in one document, with a receipt for each (REST v3).

An entry whose data do not match their type fails alone; the others make one batch per partition. The answer is 207 with
`successes` and `failures`, in which entries are named by their ids.
"""

from __future__ import annotations

from typing import NamedTuple

from aiohttp import web
from msgspec import Struct

from tidelog.broker.http import params
from tidelog.broker.http.answers import json_answer
from tidelog.broker.http.body import read_body
from tidelog.broker.http.call import Call
from tidelog.broker.http.context import Context
from tidelog.broker.http.idempotency import keyed_request
from tidelog.broker.http.json_body import DataV3, EntriesV3, EntryV3, decode_items
from tidelog.broker.http.media import check_document
from tidelog.broker.http.produce import Grouping, Slot, Terms, append, common_error, refuse_other_content
from tidelog.broker.http.records_v3 import FailureV3, ReceiptV3, failure_of, receipt_of, record_of
from tidelog.model.batch_header import RecordBatch
from tidelog.model.errors import TidelogError, UnprocessableBody
from tidelog.model.records import Record
from tidelog.model.steps import Steps, mapped_slices


class BatchReceiptV3(Struct, frozen=True):
    """The results of all entries, each list in the order of the request."""

    successes: list[ReceiptV3]
    failures: list[FailureV3]


async def produce_entries(context: Context, call: Call) -> web.StreamResponse:
    """Produces the entries of one document, with a receipt for each."""
    cluster_id = context.face.cluster.cluster_id
    topic = context.face.cluster.topic(call.topic_name())
    check_document(call.request)
    acks = params.acks(call.query)
    body = await read_body(context, call, context.limits.json_bytes_max)
    keyed = keyed_request(call.request, topic.topic_id, "records:batch", body)
    await refuse_other_content(context, topic, keyed)
    grouping = Grouping(context, topic, keyed)
    work = context.face.work
    grouped, failures, batches = await work.do(_batches(context, grouping, body))
    outcomes = {}
    if grouped:
        outcomes = await append(context, topic, batches, Terms(acks, call.deadline_s(context), keyed))
        common = common_error(list(outcomes.values()))
        if common is not None and not failures:
            raise common

    def receipt(produced: _Grouped) -> ReceiptV3 | FailureV3:
        outcome = outcomes[produced.slot.partition]
        if isinstance(outcome, TidelogError):
            return failure_of(outcome, produced.entry.id)
        return receipt_of(cluster_id, topic.name, produced.entry, produced.record, produced.slot, outcome)

    receipts = await work.finish(mapped_slices(receipt, grouped))
    successes = [success for success in receipts if isinstance(success, ReceiptV3)]
    failures += [failure for failure in receipts if isinstance(failure, FailureV3)]
    return json_answer(BatchReceiptV3(successes, failures), status=207)


class _Grouped(NamedTuple):
    entry: EntryV3
    record: Record
    slot: Slot


def _size(data: DataV3 | None) -> int:
    return 0 if data is None else len(memoryview(data.data))


def _batches(
    context: Context, grouping: Grouping, body: bytearray
) -> Steps[tuple[list[_Grouped], list[FailureV3], dict[int, list[RecordBatch]]]]:
    """Adds each valid entry of a body to the batch of its partition, and the others to the failures. Returns the valid
    entries, the failures and the batches.
    """
    entries = _checked(context, (yield from decode_items(EntriesV3, "entries", EntryV3, body)))
    now_ms = context.face.clock.wall_ms()
    grouped: list[_Grouped] = []
    failures: list[FailureV3] = []
    for entry in entries:
        try:
            record = record_of(entry, now_ms)
            grouped.append(_Grouped(entry, record, grouping.add(record, entry.partition_id)))
        except TidelogError as error:
            failures.append(failure_of(error, entry.id))
        if grouping.is_slice_over(_size(entry.key), _size(entry.value)):
            yield None
    return grouped, failures, (yield from grouping.batches())


def _checked(context: Context, entries: list[EntryV3]) -> list[EntryV3]:
    """Returns the entries. Raises `UnprocessableBody` if there are too few or too many, or their ids are not unique or
    too long.
    """
    if not 0 < len(entries) <= context.limits.entries_max:
        raise UnprocessableBody(f"{len(entries)} entries: send 1 to {context.limits.entries_max}")
    ids: dict[str, None] = {}
    for entry in entries:
        if not 0 < len(entry.id) <= context.limits.entry_id_chars_max:
            raise UnprocessableBody(f"an id has 1 to {context.limits.entry_id_chars_max} characters")
        if entry.id in ids:
            raise UnprocessableBody(f"the id {params.shown(entry.id)} is used twice; each entry needs its own")
        ids[entry.id] = None
    return entries
