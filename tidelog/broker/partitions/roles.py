"""What a broker is to be for a partition, and who sees to it: each commit protocol has roles of its own.

`Replicas` compares the metadata with what is there, and leaves the rest to the `Roles` of the topic's protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.broker.repair.copies import Holder
from tidelog.config.schema import TopicConfig
from tidelog.controller.partition_commands import UnfitReason
from tidelog.model.cluster import ClusterImage, PartitionInfo, Topic
from tidelog.model.ids import PartitionId


class Assignment(NamedTuple):
    """A replica that this broker is to hold, as an image has it."""

    partition_id: PartitionId
    topic: Topic
    info: PartitionInfo
    config: TopicConfig
    """In force for the topic."""


class Roles(Protocol):
    """Of the partitions on one broker that commit by one protocol."""

    @property
    def partitions(self) -> Mapping[PartitionId, LedPartition]:
        """Those that this broker leads and could open."""
        ...

    @property
    def holders(self) -> Mapping[PartitionId, Holder]:
        """All replicas here that have a role, whichever."""
        ...

    async def serve(self, assigned: Assignment, image: ClusterImage) -> bool:
        """Sees to it that a partition has the role of this image; True if that took any time."""
        ...

    async def stop(self, partition_id: PartitionId) -> None:
        """Ends the role. Nothing that it began changes the disk any more when this returns."""
        ...

    def unfit(self) -> dict[PartitionId, UnfitReason]:
        """Those that the cluster should not count on."""
        ...

    async def close(self) -> None:
        """Ends all roles: this broker stops."""
        ...
