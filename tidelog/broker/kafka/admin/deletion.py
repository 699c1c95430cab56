"""DeleteRecords: the committed records at the heads of partitions go. Any broker reaches the leaders."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from tidelog.broker.kafka.admin.codes import DONE, Outcome, Refused
from tidelog.broker.kafka.admin.desk import Desk, Tree, refuse_repeated, repeated, topic_resource
from tidelog.broker.kafka.admin.grouping import by_topic
from tidelog.model.access import Operation
from tidelog.model.kafka_codes import KafkaCode

ALL: Final = -1
"""In the place of an offset: all that is committed now."""
UNKNOWN: Final = -1


class _Asked(NamedTuple):
    topic: str
    partition: int
    offset: int


async def delete_records(desk: Desk, request: Any) -> Tree:
    """Deletes the records below an offset of each partition, and says with which offset it begins then."""
    asked = [
        _Asked(topic.name, one.partition_index, one.offset) for topic in request.topics for one in topic.partitions
    ]
    is_repeated = repeated(one[:2] for one in asked)
    deadline_s = desk.deadline_s(request.timeout)

    async def delete(one: _Asked) -> Tree:
        refuse_repeated(is_repeated=is_repeated(one[:2]), what="this partition")
        desk.require(Operation.DELETE, topic_resource(one.topic))
        subject = f"{one.topic}-{one.partition} before {one.offset}"
        async with desk.changing(Operation.DELETE, topic_resource(one.topic), subject):
            return _answer(one, DONE, await _delete(desk, one, deadline_s))

    return {"topics": by_topic(asked, await desk.each(asked, delete, _answer), "partitions")}


async def _delete(desk: Desk, one: _Asked, deadline_s: float) -> int:
    """Returns where the partition begins now."""
    partition = desk.parts.partitions.handle(one.topic, one.partition)
    offset = (await partition.extent()).high_watermark if one.offset == ALL else one.offset
    if offset < 0:
        raise Refused(KafkaCode.OFFSET_OUT_OF_RANGE, f"{offset} is no offset, and does not stand for all (-1)")
    await partition.delete_records(offset, deadline_s=deadline_s)
    return (await partition.extent()).log_start_offset


def _answer(one: _Asked, outcome: Outcome, low_watermark: int = UNKNOWN) -> Tree:
    return {"partition_index": one.partition, "low_watermark": low_watermark, "error_code": outcome.code}
