"""What a broker answers to a produce request, as one receipt per batch."""

from __future__ import annotations

import msgspec

from tidelog.producer.accumulator import Batch, BatchReceipt
from tidelog.transport.errors import NoAnswer, decode_answer


class _Placed(msgspec.Struct, frozen=True):
    base_offset: int | None


class _Answer(msgspec.Struct, frozen=True):
    batches: tuple[_Placed, ...]
    leader_epoch: int
    acked_by: tuple[int, ...]
    durability: str


_ANSWER = msgspec.json.Decoder(_Answer)


def parse_receipts(body: bytes, batch_count: int) -> list[BatchReceipt]:
    """The receipts of a request's batches; an empty body (acks=0) promises nothing.

    Raises `NoAnswer`, since what is no receipt leaves the outcome open.
    """
    if not body:
        return [BatchReceipt(None, -1, (), "none")] * batch_count
    answer = decode_answer(_ANSWER, body)
    if len(answer.batches) != batch_count:
        raise NoAnswer(f"the receipt names {len(answer.batches)} batches, {batch_count} were sent")
    return [
        BatchReceipt(placed.base_offset, answer.leader_epoch, answer.acked_by, answer.durability)
        for placed in answer.batches
    ]


def fill_in(receipts: list[BatchReceipt], batches: list[Batch]) -> list[BatchReceipt]:
    """Counts back from each known base offset to the unknown ones before it, for batches appended without a gap."""
    filled = list(receipts)
    for index in range(len(filled) - 2, -1, -1):
        following = filled[index + 1].base_offset
        if filled[index].base_offset is None and following is not None:
            filled[index] = filled[index]._replace(base_offset=following - batches[index].record_count)
    return filled
