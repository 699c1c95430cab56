"""Raw record batches for many partitions in one request: Kafka's Produce, with a result for each partition.

The body is a table followed by the batches (`model/partition_batches`). An error in the table fails the request, and
nothing is appended. An error of one partition or its batches is in that partition's result and does not affect the
others: the batches of all partitions are appended at the same time, by the same deadline.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web
from msgspec import Struct

from tidelog.broker.face.partitions import ProduceReceipt
from tidelog.broker.http import params
from tidelog.broker.http.answers import json_answer, no_content
from tidelog.broker.http.batches import BatchOffsets
from tidelog.broker.http.body import read_batches
from tidelog.broker.http.call import Call
from tidelog.broker.http.context import Context
from tidelog.broker.http.idempotency import refuse_key
from tidelog.broker.http.media import check_batches
from tidelog.broker.http.produce import common_error
from tidelog.model.access import Operation
from tidelog.model.batch_header import split_batches
from tidelog.model.errors import TidelogError
from tidelog.model.names import check_topic_name
from tidelog.model.partition_batches import PARTITION_BATCHES_TYPE, PartitionBatches, split_partitions

AT_A_TIME: Final = 32
"""Partitions whose appends are started before other requests have their turn on the event loop."""
OF_THE_REQUEST: Final = frozenset({503, 504})
"""Statuses that become the status of the whole answer if all partitions fail with the same error, so that a client that
looks only at the status retries.
"""


class PartitionReceipt(Struct, frozen=True):
    """The result for one partition's batches: a receipt, or `error_code` and `message`; the other fields are null."""

    topic: str
    partition: int
    batches: list[BatchOffsets] | None = None
    leader_epoch: int | None = None
    acked_by: list[int] | None = None
    durability: str | None = None
    error_code: int | None = None
    message: str | None = None


class PartitionReceipts(Struct, frozen=True):
    """The results for all partitions, in the order of the request."""

    partitions: list[PartitionReceipt]


async def post_many_batches(context: Context, call: Call) -> web.StreamResponse:
    """Appends record batches to many partitions, each of which succeeds or fails by itself."""
    check_batches(call.request, PARTITION_BATCHES_TYPE)
    refuse_key(call.request, "stands for one partition's batches: number them, or send each partition its own request")
    acks = params.acks(call.query)
    deadline_s = call.deadline_s(context)
    body = await read_batches(context, call)
    entries = split_partitions(body, context.limits.batches_partitions_max)
    outcomes = await _append_all(context, call, entries, acks, deadline_s)
    error = common_error(outcomes)
    if error is not None and error.status in OF_THE_REQUEST:
        raise error
    if acks == 0 and not any(isinstance(outcome, TidelogError) for outcome in outcomes):
        return no_content()
    return json_answer(PartitionReceipts([_shown(*entry) for entry in zip(entries, outcomes, strict=True)]))


async def _append_all(
    context: Context, call: Call, entries: list[PartitionBatches], acks: int, deadline_s: float
) -> list[ProduceReceipt | TidelogError]:
    appends: list[asyncio.Task[ProduceReceipt | TidelogError]] = []
    async with asyncio.TaskGroup() as group:
        for number, entry in enumerate(entries, start=1):
            appends.append(group.create_task(_append(context, call, entry, acks, deadline_s)))
            if number % AT_A_TIME == 0:
                await asyncio.sleep(0)
    return [append.result() for append in appends]


async def _append(
    context: Context, call: Call, entry: PartitionBatches, acks: int, deadline_s: float
) -> ProduceReceipt | TidelogError:
    try:
        context.require(call, Operation.WRITE, "Topic", [entry.topic])
        partition = context.face.partitions.handle(check_topic_name(entry.topic), entry.partition)
        batches = split_batches(entry.data, batch_bytes_max=partition.config.max_message_bytes)
        return await partition.produce(batches, acks=acks, deadline_s=deadline_s)
    except TidelogError as error:
        return error


def _shown(entry: PartitionBatches, outcome: ProduceReceipt | TidelogError) -> PartitionReceipt:
    if isinstance(outcome, TidelogError):
        return PartitionReceipt(entry.topic, entry.partition, error_code=outcome.code, message=outcome.message)
    offsets = [BatchOffsets(base_offset, last_offset) for base_offset, last_offset in outcome.batches]
    return PartitionReceipt(
        entry.topic, entry.partition, offsets, outcome.leader_epoch, list(outcome.acked_by), outcome.durability
    )
