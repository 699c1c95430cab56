"""ElectLeaders: preferred replicas lead again; or any live one, where nobody can lead (unclean)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from tidelog.broker.kafka.admin.codes import AdminCode, Outcome, Refused, outcome_of
from tidelog.broker.kafka.admin.desk import Desk, Tree, bound
from tidelog.broker.kafka.admin.grouping import by_topic
from tidelog.controller.partition_commands import (
    ElectionCode,
    ElectionType,
    ElectLeaders,
    PartitionNamed,
)
from tidelog.model.access import CLUSTER, Operation
from tidelog.model.errors import TidelogError
from tidelog.model.kafka_codes import KafkaCode

TYPES: Final = (ElectionType.PREFERRED, ElectionType.UNCLEAN)
CODES: Final[Mapping[ElectionCode, int]] = MappingProxyType(
    {
        ElectionCode.NONE: 0,
        ElectionCode.ELECTION_NOT_NEEDED: AdminCode.ELECTION_NOT_NEEDED,
        ElectionCode.PREFERRED_LEADER_NOT_AVAILABLE: AdminCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ElectionCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: AdminCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ElectionCode.UNKNOWN_PARTITION: KafkaCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class _Asked(NamedTuple):
    topic: str
    partition: int


async def elect_leaders(desk: Desk, request: Any) -> Tree:
    """Elects leaders of the partitions that are named, or of all, of which those are told that have another one."""
    asked = None
    if request.topic_partitions is not None:
        asked = [_Asked(topic.topic, number) for topic in request.topic_partitions for number in topic.partitions]
    bound(len(asked or ()))
    try:
        desk.require(Operation.ALTER, CLUSTER)
        async with desk.changing(Operation.ALTER, CLUSTER, _subject(request, asked)):
            found = await _elect(desk, request, asked)
    except (TidelogError, Refused) as error:
        outcome = outcome_of(error, CLUSTER.type)
        return {"error_code": outcome.code, "replica_election_results": _told(dict.fromkeys(asked or (), outcome))}
    return {"error_code": 0, "replica_election_results": _told(found)}


def _subject(request: Any, asked: Sequence[_Asked] | None) -> str:
    shown = "all partitions" if asked is None else " ".join(f"{topic}-{number}" for topic, number in asked[:10])
    return f"election {getattr(request, 'election_type', 0)} of {shown}"


async def _elect(desk: Desk, request: Any, asked: Sequence[_Asked] | None) -> dict[_Asked, Outcome]:
    kind = getattr(request, "election_type", 0)
    if kind not in (0, 1):
        raise Refused(KafkaCode.INVALID_REQUEST, f"{kind} is no type of election: 0 is preferred, 1 unclean")
    topics = desk.image.topics
    known = [one for one in dict.fromkeys(asked or ()) if one.topic in topics]
    named = None if asked is None else [PartitionNamed(topics[one.topic].topic_id, one.partition) for one in known]
    who, via, at_ms = desk.caller.principal.name, desk.cluster.node_id, desk.face.clock.wall_ms()
    names: dict[str, str] = {topic.topic_id: topic.name for topic in topics.values()}
    answers = await desk.administration.elect_leaders(ElectLeaders(TYPES[kind], named, who, via, at_ms))
    unknown = Outcome(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic")
    found = dict.fromkeys(asked or (), unknown)
    for answer in answers:
        if answer.topic_id in names:
            outcome = Outcome(CODES[answer.code], None if answer.code is ElectionCode.NONE else answer.code.value)
            found[_Asked(names[answer.topic_id], answer.partition)] = outcome
    return found


def _told(found: Mapping[_Asked, Outcome]) -> list[Tree]:
    answers = [{"partition_id": one.partition, **outcome.fields} for one, outcome in found.items()]
    return by_topic(found, answers, "partition_result", "topic")
