"""Plans reassignments for a whole cluster, after brokers were added or before they are removed. Pure.

A plan for 10,000 partitions takes a second, which is longer than a controller may be silent. So it is not made by the
controller but by the broker that gets the request, from its own image; it then sends the controller the reassignments
in portions. A plan starts from the target replicas, so that planning again during the reassignments finds nothing to
do, or only those not begun yet.

    to remove a broker:  planned(image, leaving=[4]) -> AlterReassignments ... -> it has no replica left -> RemoveBroker
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.controller.partition_commands import MOVES_MAX, AlterReassignments, NewReplicas
from tidelog.model.cluster import ClusterImage
from tidelog.model.errors import NotFound
from tidelog.model.ids import NodeId, TopicPartition
from tidelog.placement.rebalance import Assignment, plan_rebalance
from tidelog.placement.striped import UsableBroker


def planned(image: ClusterImage, leaving: Sequence[int] = ()) -> list[AlterReassignments]:
    """Returns commands that spread all replicas evenly over the brokers, and leave none on those in `leaving`.

    A fenced broker that does not leave is included; if it would have to copy a partition, the controller refuses that
    command. Raises `NotFound` for an unknown broker in `leaving`; `InvalidRequest` if a partition has more replicas
    than brokers remain, if only some brokers have a rack, or if a replica is on an unknown broker.
    """
    unknown = [node for node in leaving if node not in image.brokers]
    if unknown:
        raise NotFound(f"there is no broker {unknown[0]}; the brokers are {', '.join(map(str, image.brokers))}")
    going = [NodeId(node) for node in dict.fromkeys(leaving)]
    staying = [_usable(image, node) for node in image.brokers if node not in going]
    # Replicas are planned from where they are to be, so that moves under way are not planned a second time.
    current = [
        Assignment(TopicPartition(topic.name, info.partition), info.target)
        for topic in image.topics.values()
        for info in topic.partitions
    ]
    plan = plan_rebalance(current, staying, [_usable(image, node) for node in going])
    ids = {topic.name: topic.topic_id for topic in image.topics.values()}
    moves = [NewReplicas(ids[name], number, list(new)) for (name, number), _, new in plan.reassignments]
    # Portions keep each decision short: a controller that computes for a second is silent for a second.
    return [AlterReassignments(moves[i : i + MOVES_MAX]) for i in range(0, len(moves), MOVES_MAX)]


def _usable(image: ClusterImage, node: NodeId) -> UsableBroker:
    return UsableBroker(node, image.brokers[node].rack)
