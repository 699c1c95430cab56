"""ElectLeaders: elects the preferred replicas, or (unclean) any live replica of a partition that has no eligible
leader."""

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


class _Partition(NamedTuple):
    topic: str
    partition: int


async def elect_leaders(desk: Desk, request: Any) -> Tree:
    """Elects leaders of the named partitions, or of all. If none are named, the answer lists only the partitions for
    which such an election was possible."""
    partitions = None
    if request.topic_partitions is not None:
        partitions = [
            _Partition(topic.topic, number) for topic in request.topic_partitions for number in topic.partitions
        ]
    bound(len(partitions or ()))
    try:
        desk.require(Operation.ALTER, CLUSTER)
        async with desk.changing(Operation.ALTER, CLUSTER, _subject(request, partitions)):
            outcomes = await _elect(desk, request, partitions)
    except (TidelogError, Refused) as error:
        outcome = outcome_of(error, CLUSTER.type)
        return {
            "error_code": outcome.code,
            "replica_election_results": _election_results(dict.fromkeys(partitions or (), outcome)),
        }
    return {"error_code": 0, "replica_election_results": _election_results(outcomes)}


def _subject(request: Any, partitions: Sequence[_Partition] | None) -> str:
    shown = (
        "all partitions" if partitions is None else " ".join(f"{topic}-{number}" for topic, number in partitions[:10])
    )
    return f"election {getattr(request, 'election_type', 0)} of {shown}"


async def _elect(desk: Desk, request: Any, partitions: Sequence[_Partition] | None) -> dict[_Partition, Outcome]:
    kind = getattr(request, "election_type", 0)
    if kind not in (0, 1):
        raise Refused(KafkaCode.INVALID_REQUEST, f"{kind} is no type of election: 0 is preferred, 1 unclean")
    topics = desk.image.topics
    existing = [partition for partition in dict.fromkeys(partitions or ()) if partition.topic in topics]
    named = (
        None
        if partitions is None
        else [PartitionNamed(topics[partition.topic].topic_id, partition.partition) for partition in existing]
    )
    principal, via, at_ms = desk.caller.principal.name, desk.cluster.node_id, desk.face.clock.wall_ms()
    names: dict[str, str] = {topic.topic_id: topic.name for topic in topics.values()}
    answers = await desk.administration.elect_leaders(ElectLeaders(TYPES[kind], named, principal, via, at_ms))
    unknown = Outcome(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic")
    outcomes = dict.fromkeys(partitions or (), unknown)
    for answer in answers:
        if answer.topic_id in names:
            outcome = Outcome(CODES[answer.code], None if answer.code is ElectionCode.NONE else answer.code.value)
            outcomes[_Partition(names[answer.topic_id], answer.partition)] = outcome
    return outcomes


def _election_results(outcomes: Mapping[_Partition, Outcome]) -> list[Tree]:
    answers = [{"partition_id": partition.partition, **outcome.fields} for partition, outcome in outcomes.items()]
    return by_topic(outcomes, answers, "partition_result", "topic")
