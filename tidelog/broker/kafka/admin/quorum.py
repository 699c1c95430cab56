"""DescribeQuorum (KIP-595): the voters of the metadata log, and how far each node has got in it.

Every broker answers from the metadata that it has applied, so a client need not find the controller. It knows the log
end offset of itself and of the leader only; for the leader it reports the committed end. The ends of other voters are
-1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tidelog.broker.kafka.admin.codes import DONE, Outcome, Refused
from tidelog.broker.kafka.admin.desk import Desk, Tree, bound
from tidelog.model.access import CLUSTER, Operation
from tidelog.model.cluster import NO_LEADER
from tidelog.model.kafka_codes import KafkaCode

METADATA_TOPIC: Final = "__cluster_metadata"
"""Kafka's name of the metadata log. Here it is not a topic."""
PEER: Final = "PEER"
UNKNOWN: Final = -1


async def describe_quorum(desk: Desk, request: Any) -> Tree:
    """Describes the metadata log. Any other partition is answered with UNKNOWN_TOPIC_OR_PARTITION."""
    bound(*(1 + len(topic.partitions) for topic in request.topics))
    try:
        desk.require(Operation.DESCRIBE, CLUSTER)
    except Refused as error:
        return {**Outcome(error.code, error.message).fields, "topics": [], "nodes": []}
    topics = [
        {
            "topic_name": topic.topic_name,
            "partitions": [
                _partition(desk, topic.topic_name, partition.partition_index) for partition in topic.partitions
            ],
        }
        for topic in request.topics
    ]
    return {**DONE.fields, "topics": topics, "nodes": _nodes(desk)}


def _partition(desk: Desk, topic: str, number: int) -> Tree:
    image = desk.image
    if (topic, number) != (METADATA_TOPIC, 0):
        outcome = Outcome(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is one such log, {METADATA_TOPIC}-0")
        return _described(number, outcome, (NO_LEADER, UNKNOWN, UNKNOWN), [], [])
    leader = NO_LEADER if desk.cluster.controller_node is None else image.controller_id
    nodes_with_end = {leader, desk.cluster.node_id}
    voters = [voter.node_id for voter in image.voters]
    observers = [node for node in image.brokers if node not in voters]
    ends = [
        [(node, image.position if node in nodes_with_end else UNKNOWN) for node in nodes]
        for nodes in (voters, observers)
    ]
    return _described(number, DONE, (leader, image.controller_epoch, image.position), *ends)


def _described(
    number: int,
    outcome: Outcome,
    log: tuple[int, int, int],
    voters: Sequence[tuple[int, int]],
    observers: Sequence[tuple[int, int]],
) -> Tree:
    """Returns the description of a partition. `log` is its leader, leader epoch and committed end; voters and observers
    are pairs of node id and log end offset."""
    leader, epoch, end = log
    return {
        "partition_index": number,
        **outcome.fields,
        "leader_id": leader,
        "leader_epoch": epoch,
        "high_watermark": end,
        "current_voters": [_replica(*voter) for voter in voters],
        "observers": [_replica(*observer) for observer in observers],
    }


def _replica(node: int, end: int) -> Tree:
    """Returns the description of a node. It has no directory id and no fetch times, which this broker does not know."""
    return {"replica_id": node, "replica_directory_id": None, "log_end_offset": end}


def _nodes(desk: Desk) -> list[Tree]:
    return [
        {"node_id": voter.node_id, "listeners": [{"name": PEER, "host": voter.host, "port": voter.port}]}
        for voter in desk.image.voters
    ]
