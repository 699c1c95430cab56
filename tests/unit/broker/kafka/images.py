"""Metadata images with brokers and one topic."""

from __future__ import annotations

from tidelog.model.cluster import HTTP, KAFKA, NO_LEADER, BrokerInfo, ClusterImage, Endpoint, PartitionInfo, Topic
from tidelog.model.ids import NodeId, TopicId

TOPIC_ID = TopicId("0" * 31 + "1")


def broker(node_id: int, *, is_fenced: bool = False, kafka: bool = True) -> BrokerInfo:
    listeners = {HTTP: Endpoint(f"host{node_id}", 8082)} | ({KAFKA: Endpoint(f"host{node_id}", 9092)} if kafka else {})
    return BrokerInfo(NodeId(node_id), listeners, None, 1, f"life{node_id}", "", 0, f"disk{node_id}", is_fenced)


def image(*brokers: BrokerInfo, leader: int = NO_LEADER) -> ClusterImage:
    """The topic `t` has one partition, on all brokers."""
    nodes = tuple(broker.node_id for broker in brokers)
    topic = Topic("t", TOPIC_ID, {}, (PartitionInfo(0, NodeId(leader), 3, nodes, nodes),))
    return ClusterImage("c", brokers={broker.node_id: broker for broker in brokers}, topics={"t": topic})
