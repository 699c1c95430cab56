"""The brokers as a decision sees them: who is live, on which disk, and what one of them has lost. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from tidelog.config.schema import TopicConfig
from tidelog.model.cluster import NO_LEADER, ClusterImage, PartitionMember, Topic
from tidelog.model.ids import NodeId


@dataclass(frozen=True, slots=True)
class Brokers:
    """The brokers that a decision takes for live, and their disks."""

    image: ClusterImage
    absent: NodeId = NO_LEADER
    """Not live, whatever the image says."""
    present: NodeId = NO_LEADER
    """Live, whatever the image says."""
    new_disk: str = ""
    """The new disk of `absent`, if it comes back with another one than the image has; else empty."""

    def is_live(self, node: NodeId) -> bool:
        return node != self.absent and (node == self.present or self.image.is_live(node))

    def storage_of(self, node: NodeId) -> str:
        # The image has the old disk until the registration that is being decided is applied.
        if node == self.absent and self.new_disk:
            return self.new_disk
        return self.image.brokers[node].storage

    def is_voting(self, member: PartitionMember) -> bool:
        """Returns True if the member's broker is live, on the very disk that votes."""
        node = NodeId(member.node_id)
        return self.is_live(node) and self.storage_of(node) == member.storage


class Loss(enum.Enum):
    """The worst that a broker may have lost with its last life."""

    NOT_SYNCED = enum.auto()
    """Perhaps whatever was not fsynced."""
    ACKNOWLEDGED = enum.auto()
    """Perhaps what it has acknowledged, too."""
    DISK = enum.auto()


@dataclass(frozen=True, slots=True)
class Lost:
    """A broker that comes back with less than it had."""

    node: NodeId
    loss: Loss
    epoch: int
    """The broker epoch of the life that was lost."""

    def of(self, topic: Topic) -> Lost:
        """Returns the loss as it is for one topic: acknowledged records, too, if the epoch is older than
        `topic.volatile_before`."""
        # That life began before the setting was changed last: it may have acknowledged from memory, whatever the
        # setting is now.
        if self.loss is Loss.NOT_SYNCED and self.epoch < topic.volatile_before:
            return replace(self, loss=Loss.ACKNOWLEDGED)
        return self

    def takes_acknowledged(self, rules: TopicConfig) -> bool:
        """Returns True if records may be gone that the broker has acknowledged."""
        # With `fsynced` whatever was acknowledged is on the disk, and a power cut takes none of it.
        return self.loss is not Loss.NOT_SYNCED or rules.ack_durability == "replicated"
