"""OffsetFetch: the committed offsets of a group, for named partitions or for all that it has; from version 8 on for
several groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidelog.broker.kafka.call import Call
from tidelog.broker.kafka.groups.trees import (
    LOOKED_FOR,
    Tree,
    as_named,
    deadline_s,
    id_of,
    may_topic,
    name_of,
    offsets_code,
    require,
)
from tidelog.broker.kafka.listener_parts import Parts
from tidelog.model.access import Caller, Operation, Resource
from tidelog.model.errors import TidelogError
from tidelog.model.groups import NO_EPOCH, NO_OFFSET, CommittedOffset, FetchOffsets, grouped
from tidelog.model.kafka_codes import KafkaCode


async def offset_fetch(parts: Parts, call: Call, request: Any, caller: Caller) -> Tree:
    """Returns the committed offsets of the requested groups."""
    if not hasattr(request, "groups"):
        tree = await _of_group(parts, request, caller)
        if tree["error_code"]:
            # aiokafka looks at the partitions alone: where none is named, it takes it that nothing is committed.
            tree["topics"] = [_refused(topic, tree["error_code"]) for topic in request.topics or ()]
        return tree
    groups = [
        {"group_id": group_request.group_id, **await _of_group(parts, group_request, caller)}
        for group_request in request.groups
    ]
    return {"groups": groups}


async def _of_group(parts: Parts, request: Any, caller: Caller) -> Tree:
    try:
        require(parts, caller, Operation.DESCRIBE, request.group_id)
        topics = await (_all(parts, request, caller) if request.topics is None else _chosen(parts, request, caller))
    except TidelogError as error:
        return {"error_code": _code(error), "topics": []}
    return {"error_code": 0, "topics": topics}


def _code(error: TidelogError) -> KafkaCode:
    """Returns Kafka's error code for a request about committed offsets. Transient errors become
    COORDINATOR_LOAD_IN_PROGRESS, the only code after which all clients ask again: librdkafka's consumer stands still
    after any other, and aiokafka and Java's consumer before 3.9 end after COORDINATOR_NOT_AVAILABLE."""
    code = offsets_code(error)
    return KafkaCode.COORDINATOR_LOAD_IN_PROGRESS if code in LOOKED_FOR else code


async def _ask(parts: Parts, request: Any, named: Sequence[tuple[str, int]] | None) -> Sequence[CommittedOffset]:
    member_id, epoch = getattr(request, "member_id", None), getattr(request, "member_epoch", NO_EPOCH)
    fetch = FetchOffsets(
        group=request.group_id,
        member_id=(member_id or "") if epoch >= 0 else "",
        member_epoch=epoch,
        partitions=None if named is None else grouped(named),
    )
    return (await parts.face.groups.ask(fetch, deadline_s=deadline_s())).offsets


async def _all(parts: Parts, request: Any, caller: Caller) -> list[Tree]:
    """Returns all committed offsets of the group, in topics that the caller may describe."""
    topics: dict[str, list[Tree]] = {}
    for committed in await _ask(parts, request, None):
        topics.setdefault(committed.topic, []).append(_shown(committed))
    return [
        {"name": name, "topic_id": id_of(parts, name), "partitions": partitions}
        for name, partitions in topics.items()
        if parts.admission.may(caller, Operation.DESCRIBE, Resource("Topic", name))
    ]


async def _chosen(parts: Parts, request: Any, caller: Caller) -> list[Tree]:
    judged = [(topic, *_judged(parts, topic, caller)) for topic in request.topics]
    named = [(name, number) for topic, name, code in judged if not code for number in topic.partition_indexes]
    committed = {(offset.topic, offset.partition): offset for offset in await _ask(parts, request, named)}
    return [
        _refused(topic, code)
        if code
        else {**as_named(topic), "partitions": [_shown(committed[name, number]) for number in topic.partition_indexes]}
        for topic, name, code in judged
    ]


def _judged(parts: Parts, topic: Any, caller: Caller) -> tuple[str, int]:
    """Returns a topic's name, and an error code if its offsets may not be shown (0 otherwise)."""
    name = name_of(parts, topic)
    if name is None:
        return "", KafkaCode.UNKNOWN_TOPIC_ID
    is_seen = may_topic(parts, caller, Operation.DESCRIBE, name)
    return name, 0 if is_seen else KafkaCode.TOPIC_AUTHORIZATION_FAILED


def _refused(topic: Any, code: int) -> Tree:
    nothing = [_partition(CommittedOffset("", number, NO_OFFSET), code) for number in topic.partition_indexes]
    return {**as_named(topic), "partitions": nothing}


def _shown(committed: CommittedOffset) -> Tree:
    return _partition(committed, 0)


def _partition(committed: CommittedOffset, code: int) -> Tree:
    return {
        "partition_index": committed.partition,
        "committed_offset": committed.offset,
        "committed_leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
        "error_code": code,
    }
