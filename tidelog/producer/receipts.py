"""Parsers of brokers' responses to produce requests into one receipt per batch, for one partition or many."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidelog.model.errors import TidelogError
from tidelog.model.ids import TopicPartition
from tidelog.producer.accumulator import Batch, BatchReceipt
from tidelog.transport.errors import NoAnswer, decode_answer, error_from_code


class _Placed(msgspec.Struct, frozen=True):
    base_offset: int | None


class _Answer(msgspec.Struct, frozen=True):
    batches: tuple[_Placed, ...]
    leader_epoch: int
    acked_by: tuple[int, ...]
    durability: str


class _Partition(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    batches: tuple[_Placed, ...] | None
    leader_epoch: int | None
    acked_by: tuple[int, ...] | None
    durability: str | None
    error_code: int | None
    message: str | None


class _Many(msgspec.Struct, frozen=True):
    partitions: tuple[_Partition, ...]


def parse_receipts(body: bytes, batch_count: int) -> list[BatchReceipt]:
    """Returns the receipts of a request's batches. An empty body (acks=0) gives receipts without offsets.

    Raises `NoAnswer` for a malformed body, since the outcome is unknown then.
    """
    if not body:
        return [BatchReceipt(None, -1, (), "none")] * batch_count
    answer = decode_answer(_Answer, body)
    return _receipts(answer, batch_count)


def parse_many(body: bytes, sent: Sequence[tuple[TopicPartition, int]]) -> list[list[BatchReceipt] | TidelogError]:
    """Returns for each partition the receipts of its batches, or its error; `sent` lists the partitions and their
    numbers of batches.

    Raises `NoAnswer` if the response is not about these partitions in this order.
    """
    if not body:
        return [parse_receipts(body, batch_count) for _, batch_count in sent]
    results = decode_answer(_Many, body).partitions
    if [(result.topic, result.partition) for result in results] != [partition for partition, _ in sent]:
        raise NoAnswer(f"the answer names {len(results)} partitions, and not the {len(sent)} that were sent")
    return [_outcome(result, batch_count) for result, (_, batch_count) in zip(results, sent, strict=True)]


def _outcome(result: _Partition, batch_count: int) -> list[BatchReceipt] | TidelogError:
    if result.error_code is not None:
        return error_from_code(result.error_code, result.message or "")
    if result.batches is None or result.leader_epoch is None or result.acked_by is None or result.durability is None:
        return NoAnswer(f"the answer says neither receipt nor error of {result.topic} {result.partition}")
    try:
        return _receipts(_Answer(result.batches, result.leader_epoch, result.acked_by, result.durability), batch_count)
    except NoAnswer as error:
        return error


def _receipts(answer: _Answer, batch_count: int) -> list[BatchReceipt]:
    if len(answer.batches) != batch_count:
        raise NoAnswer(f"the receipt names {len(answer.batches)} batches, {batch_count} were sent")
    return [
        BatchReceipt(placed.base_offset, answer.leader_epoch, answer.acked_by, answer.durability)
        for placed in answer.batches
    ]


def fill_in(receipts: list[BatchReceipt], batches: list[Batch]) -> list[BatchReceipt]:
    """Computes unknown base offsets backwards from the next known one, for batches that were appended without a gap."""
    filled = list(receipts)
    for index in range(len(filled) - 2, -1, -1):
        following = filled[index + 1].base_offset
        if filled[index].base_offset is None and following is not None:
            filled[index] = filled[index]._replace(base_offset=following - batches[index].record_count)
    return filled
