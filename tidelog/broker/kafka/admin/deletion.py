"""DeleteRecords: deletes committed records before an offset. Any broker takes the request and passes it to the
leaders."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from tidelog.broker.kafka.admin.codes import DONE, Outcome, Refused
from tidelog.broker.kafka.admin.desk import Desk, Tree, refuse_repeated, repeated, topic_resource
from tidelog.broker.kafka.admin.grouping import by_topic
from tidelog.model.access import Operation
from tidelog.model.kafka_codes import KafkaCode

ALL: Final = -1
"""The offset that stands for the high watermark in a request: delete all committed records."""
UNKNOWN: Final = -1


class _Deletion(NamedTuple):
    topic: str
    partition: int
    offset: int


async def delete_records(desk: Desk, request: Any) -> Tree:
    """Deletes the records of each partition below an offset, and returns each partition's new log start offset."""
    deletions = [
        _Deletion(topic.name, partition.partition_index, partition.offset)
        for topic in request.topics
        for partition in topic.partitions
    ]
    is_repeated = repeated(deletion[:2] for deletion in deletions)
    deadline_s = desk.deadline_s(request.timeout)

    async def delete(deletion: _Deletion) -> Tree:
        refuse_repeated(is_repeated=is_repeated(deletion[:2]), what="this partition")
        desk.require(Operation.DELETE, topic_resource(deletion.topic))
        subject = f"{deletion.topic}-{deletion.partition} before {deletion.offset}"
        async with desk.changing(Operation.DELETE, topic_resource(deletion.topic), subject):
            return _answer(deletion, DONE, await _delete(desk, deletion, deadline_s))

    return {"topics": by_topic(deletions, await desk.each(deletions, delete, _answer), "partitions")}


async def _delete(desk: Desk, deletion: _Deletion, deadline_s: float) -> int:
    """Deletes records of one partition; returns its new log start offset."""
    partition = desk.parts.partitions.handle(deletion.topic, deletion.partition)
    offset = (await partition.extent()).high_watermark if deletion.offset == ALL else deletion.offset
    if offset < 0:
        raise Refused(KafkaCode.OFFSET_OUT_OF_RANGE, f"{offset} is no offset, and does not stand for all (-1)")
    await partition.delete_records(offset, deadline_s=deadline_s)
    return (await partition.extent()).log_start_offset


def _answer(deletion: _Deletion, outcome: Outcome, low_watermark: int = UNKNOWN) -> Tree:
    return {"partition_index": deletion.partition, "low_watermark": low_watermark, "error_code": outcome.code}
