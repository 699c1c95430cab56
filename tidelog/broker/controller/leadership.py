"""Who leads which partition when brokers come and go: pure, from an image and who is live.

A leader that is live stays. Otherwise the first in-sync replica that is live leads, and if there is none, nobody does
(leader -1) and the in-sync replicas stay as they were: only they have everything that was acknowledged, so one of them
must come back. Each change of leader, also to and from nobody, is a new leader epoch.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.broker.controller.records import PartitionChange, PartitionsChanged
from tidelog.model.cluster import NO_LEADER, ClusterImage, PartitionInfo, Topic
from tidelog.model.ids import NodeId


def led_by(image: ClusterImage, is_live: Callable[[NodeId], bool]) -> tuple[PartitionsChanged, ...]:
    """The record that gives each partition the leader that it should have; none if all have it."""
    changes = [
        _change(topic, info, leader)
        for topic in image.topics.values()
        for info in topic.partitions
        if (leader := _leader(info, is_live)) != info.leader
    ]
    return (PartitionsChanged(changes),) if changes else ()


def without(image: ClusterImage, node: NodeId) -> tuple[PartitionsChanged, ...]:
    """What changes when a broker is fenced."""
    return led_by(image, lambda other: other != node and image.is_live(other))


def including(image: ClusterImage, node: NodeId) -> tuple[PartitionsChanged, ...]:
    """What changes when a broker is unfenced."""
    return led_by(image, lambda other: other == node or image.is_live(other))


def _leader(info: PartitionInfo, is_live: Callable[[NodeId], bool]) -> NodeId:
    if info.leader != NO_LEADER and is_live(info.leader):
        return info.leader
    return next((node for node in info.isr if is_live(node)), NO_LEADER)


def _change(topic: Topic, info: PartitionInfo, leader: NodeId) -> PartitionChange:
    return PartitionChange(
        topic.topic_id, info.partition, leader, info.leader_epoch + 1, list(info.isr), info.partition_epoch + 1
    )
