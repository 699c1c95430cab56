"""Raw record batches for many partitions in one request: Kafka's Produce, each partition with an outcome of its own.

The body is a table and the batches behind it (`model/partition_batches`). What is wrong with the table is wrong with
the request, and nothing is appended. What is wrong with one partition, or with its batches, stands in its place in the
answer, and troubles no other: each is appended as if it had come alone, all at the same time and by the same deadline.
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
from tidelog.broker.http.media import check_partition_batches
from tidelog.broker.http.produce import common_error
from tidelog.model.access import Operation
from tidelog.model.batch_header import split_batches
from tidelog.model.errors import TidelogError
from tidelog.model.names import check_topic_name
from tidelog.model.partition_batches import PartitionBatches, split_partitions

AT_A_TIME: Final = 32
"""So many partitions are begun with before others on the event loop have their turn."""
OF_THE_REQUEST: Final = frozenset({503, 504})
"""If all partitions fail alike, these are the status of the answer, so that whoever looks at that alone tries again."""


class PartitionReceipt(Struct, frozen=True):
    """The outcome of one partition's batches: a receipt, or else `error_code` and `message`, and null for the rest."""

    topic: str
    partition: int
    batches: list[BatchOffsets] | None = None
    leader_epoch: int | None = None
    acked_by: list[int] | None = None
    durability: str | None = None
    error_code: int | None = None
    message: str | None = None


class PartitionReceipts(Struct, frozen=True):
    """The outcomes of all partitions, in the order of the request."""

    partitions: list[PartitionReceipt]


async def post_many_batches(context: Context, call: Call) -> web.StreamResponse:
    """Appends record batches to many partitions, each of which succeeds or fails by itself."""
    check_partition_batches(call.request)
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
