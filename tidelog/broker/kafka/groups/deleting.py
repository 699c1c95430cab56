"""DeleteGroups and OffsetDelete, both for groups without members.

Kafka also deletes offsets of a group with members, for topics that none of them subscribes to. Here the group must be
empty, as for every change of a group's offsets that does not come from its members.
"""

from __future__ import annotations

from typing import Any

from tidelog.broker.kafka.call import Call
from tidelog.broker.kafka.codes import code_of
from tidelog.broker.kafka.groups.trees import (
    Tree,
    deadline_s,
    group_code,
    may_topic,
    mutate,
    require,
)
from tidelog.broker.kafka.listener_parts import Parts
from tidelog.model.access import Caller, Operation
from tidelog.model.errors import QuotaExceeded, TidelogError
from tidelog.model.groups import NO_OFFSET, CommittedOffset, DeleteGroup, SetOffsets, check_group_name
from tidelog.model.kafka_codes import KafkaCode


async def delete_groups(parts: Parts, call: Call, request: Any, caller: Caller) -> Tree:
    """Deletes groups; the answer has an error code for each."""
    names = dict.fromkeys(request.groups_names)
    results = [{"group_id": name, "error_code": await _deleted(parts, call, name, caller)} for name in names]
    return {"results": results}


async def _deleted(parts: Parts, call: Call, name: str, caller: Caller) -> int:
    try:
        require(parts, caller, Operation.DELETE, check_group_name(name))
        await mutate(parts, call, caller)
        await parts.face.groups.ask(DeleteGroup(group=name), deadline_s=deadline_s())
    except QuotaExceeded as error:
        return code_of(error)
    except TidelogError as error:
        return group_code(error)
    return 0


async def offset_delete(parts: Parts, call: Call, request: Any, caller: Caller) -> Tree:
    """Deletes a group's committed offsets; the answer has an error code for each partition."""
    permitted = [topic for topic in request.topics if may_topic(parts, caller, Operation.READ, topic.name)]
    named = [(topic.name, partition.partition_index) for topic in permitted for partition in topic.partitions]
    try:
        require(parts, caller, Operation.DELETE, check_group_name(request.group_id))
        await parts.face.groups.describe(request.group_id, deadline_s())
        offsets = tuple(CommittedOffset(topic, number, NO_OFFSET) for topic, number in named)
        await parts.face.groups.ask(SetOffsets(group=request.group_id, offsets=offsets), deadline_s=deadline_s())
    except TidelogError as error:
        return {"error_code": group_code(error), "topics": []}
    codes = {topic.name: 0 for topic in permitted}
    topics = [_answered(topic, codes.get(topic.name, KafkaCode.TOPIC_AUTHORIZATION_FAILED)) for topic in request.topics]
    return {"error_code": 0, "topics": topics}


def _answered(topic: Any, code: int) -> Tree:
    partitions = [{"partition_index": partition.partition_index, "error_code": code} for partition in topic.partitions]
    return {"name": topic.name, "partitions": partitions}
