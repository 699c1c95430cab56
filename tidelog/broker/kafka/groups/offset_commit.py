"""OffsetCommit: from members of classic and consumer groups, and from callers that are no members, such as admin
tools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from tidelog.broker.kafka.call import Call
from tidelog.broker.kafka.groups.trees import (
    Tree,
    as_named,
    deadline_s,
    may_topic,
    name_of,
    offsets_code,
    require,
)
from tidelog.broker.kafka.listener_parts import Parts
from tidelog.model.access import Caller, Operation
from tidelog.model.classic_groups import CommitAsMember
from tidelog.model.errors import TidelogError
from tidelog.model.groups import CommittedOffset, CommitVerdict
from tidelog.model.kafka_codes import KafkaCode
from tidelog.transport.errors import error_from_code

NO_EPOCH: Final = -1


class _Row:
    """A partition of an OffsetCommit request, with its error code."""

    __slots__ = ("code", "entry", "topic")

    def __init__(self, topic: str, entry: Any, code: int) -> None:
        self.topic = topic
        self.entry = entry
        self.code = code

    def offset(self) -> CommittedOffset:
        """Returns the offset to commit, as the group coordinator's request takes it."""
        epoch = getattr(self.entry, "committed_leader_epoch", NO_EPOCH)
        metadata = self.entry.committed_metadata or ""
        return CommittedOffset(self.topic, self.entry.partition_index, self.entry.committed_offset, epoch, metadata)


async def offset_commit(parts: Parts, call: Call, request: Any, caller: Caller) -> Tree:
    """Commits offsets; the answer has an error code for each partition."""
    rows = [list(_judged(parts, topic, caller)) for topic in request.topics]
    sound = [row for of_topic in rows for row in of_topic if not row.code]
    try:
        require(parts, caller, Operation.READ, request.group_id)
        if sound:
            await _commit(parts, request, sound)
    except TidelogError as error:
        for row in sound:
            row.code = offsets_code(error)
    return {
        "topics": [
            {
                **as_named(topic),
                "partitions": [
                    {"partition_index": row.entry.partition_index, "error_code": row.code} for row in of_topic
                ],
            }
            for topic, of_topic in zip(request.topics, rows, strict=True)
        ],
    }


def _judged(parts: Parts, topic: Any, caller: Caller) -> Iterator[_Row]:
    """Yields the partitions of a topic, each with an error code if it cannot be committed. They are checked here
    because the coordinator would refuse the whole request for one of them."""
    name = name_of(parts, topic)
    code = 0
    if name is None:
        code = KafkaCode.UNKNOWN_TOPIC_ID
    elif not may_topic(parts, caller, Operation.READ, name):
        code = KafkaCode.TOPIC_AUTHORIZATION_FAILED
    for partition in topic.partitions:
        is_number = (
            partition.committed_offset >= 0 and getattr(partition, "committed_leader_epoch", NO_EPOCH) >= NO_EPOCH
        )
        yield _Row(name or "", partition, code or (0 if is_number else KafkaCode.INVALID_REQUEST))


async def _commit(parts: Parts, request: Any, rows: Sequence[_Row]) -> None:
    commit = CommitAsMember(
        group=request.group_id,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        generation=request.generation_id_or_member_epoch,
        offsets=tuple(row.offset() for row in rows),
    )
    answer = await parts.face.groups.classic.commit(commit, deadline_s())
    for row, verdict in zip(rows, answer.verdicts, strict=True):
        row.code = _code(verdict)


def _code(verdict: CommitVerdict) -> int:
    return offsets_code(error_from_code(verdict.code, verdict.message)) if verdict.code else 0
