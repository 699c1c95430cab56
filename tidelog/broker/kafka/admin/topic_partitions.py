"""DescribeTopicPartitions (KIP-966): topics sorted by name, a page of partitions at a time.

A page that is not the last has a cursor, which the client sends to get the next page. A topic that is unknown or
forbidden counts as one partition of the page.
"""

from __future__ import annotations

from typing import Any, Final

from tidelog.broker.kafka.admin import acls
from tidelog.broker.kafka.admin.codes import Refused
from tidelog.broker.kafka.admin.desk import Desk, Tree, bound, topic_resource
from tidelog.broker.kafka.codes import unknown_topic_code
from tidelog.model.access import Operation
from tidelog.model.cluster import NO_LEADER, PartitionInfo, Topic
from tidelog.model.ids import NodeId
from tidelog.model.kafka_codes import KafkaCode

PARTITIONS_MAX: Final = 2_000
"""Maximum number of partitions in one answer."""
NAMES_MAX: Final = 20_000
"""Maximum number of topics that a request may name. Java's clients name all their topics again for each page."""
NO_TOPIC_OPERATIONS: Final = (Operation.ALL, Operation.CLUSTER_ACTION, Operation.IDEMPOTENT_WRITE)
OPERATIONS: Final = {Operation(word): bit for bit, word in acls.OPERATIONS.items()}
"""Operations and their bits in `topic_authorized_operations`, which are the numbers that ACLs have for them."""


async def describe_topic_partitions(desk: Desk, request: Any) -> Tree:
    """Describes the named topics, or all topics that the client may describe."""
    bound(len(request.topics), most=NAMES_MAX)
    cursor = request.cursor
    after = "" if cursor is None else cursor.topic_name
    remaining = min(max(request.response_partition_limit, 1), PARTITIONS_MAX)
    shown: list[Tree] = []
    for name in [name for name in _names(desk, request) if name >= after]:
        begin = max(0, cursor.partition_index) if name == after and cursor is not None else 0
        if remaining <= 0:
            return {"topics": shown, "next_cursor": {"topic_name": name, "partition_index": begin}}
        topic, count = _shown(desk, name, begin, remaining)
        shown.append(topic)
        remaining -= max(1, len(topic["partitions"]))
        if begin + len(topic["partitions"]) < count:
            next_cursor = {"topic_name": name, "partition_index": begin + len(topic["partitions"])}
            return {"topics": shown, "next_cursor": next_cursor}
    return {"topics": shown, "next_cursor": None}


def _names(desk: Desk, request: Any) -> list[str]:
    if request.topics:
        return sorted(dict.fromkeys(topic.name for topic in request.topics))
    return [name for name in sorted(desk.image.topics) if desk.may(Operation.DESCRIBE, topic_resource(name))]


def _shown(desk: Desk, name: str, begin: int, most: int) -> tuple[Tree, int]:
    """Returns the description of a topic with at most `most` partitions from `begin` on, and its number of
    partitions."""
    try:
        desk.require(Operation.DESCRIBE, topic_resource(name))
    except Refused as error:
        return _not_shown(name, error.code), 0
    topic = desk.image.topics.get(name)
    if topic is None:
        return _not_shown(name, unknown_topic_code(name)), 0
    live = frozenset(broker.node_id for broker in desk.image.live_brokers)
    tree = {
        "error_code": 0,
        "name": name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "partitions": [_partition(info, live) for info in topic.partitions[begin : begin + most]],
        "topic_authorized_operations": _operations(desk, topic),
    }
    return tree, len(topic.partitions)


def _not_shown(name: str, code: int) -> Tree:
    return {"error_code": code, "name": name, "topic_id": None, "partitions": []}


def _operations(desk: Desk, topic: Topic) -> int:
    resource = topic_resource(topic.name)
    return sum(
        1 << bit
        for operation, bit in OPERATIONS.items()
        if operation not in NO_TOPIC_OPERATIONS and desk.may(operation, resource)
    )


def _partition(info: PartitionInfo, live: frozenset[NodeId]) -> Tree:
    return {
        "error_code": KafkaCode.LEADER_NOT_AVAILABLE if info.leader == NO_LEADER else 0,
        "partition_index": info.partition,
        "leader_id": info.leader,
        "leader_epoch": info.leader_epoch,
        "replica_nodes": list(info.replicas),
        "isr_nodes": list(info.isr),
        "eligible_leader_replicas": list(info.elr),
        "last_known_elr": list(info.last_known_elr),
        "offline_replicas": [node for node in info.replicas if node not in live],
    }
