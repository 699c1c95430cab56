"""The brokers for one decision: which are live, on which disks, and what a restarted broker may have lost. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from tidelog.config.schema import TopicConfig
from tidelog.model.cluster import NO_LEADER, ClusterImage, PartitionMember, Topic
from tidelog.model.ids import NodeId


@dataclass(frozen=True, slots=True)
class Brokers:
    """The live brokers of a cluster image and their disks, with the broker that the decision itself takes in or out."""

    image: ClusterImage
    absent: NodeId = NO_LEADER
    """A broker to be treated as not live, even if the image has it as live."""
    present: NodeId = NO_LEADER
    """A broker to be treated as live, even if the image has it as fenced."""
    new_disk: str = ""
    """The new disk of the broker `absent`, if it registers with another disk than the image has; else empty."""

    def is_live(self, node: NodeId) -> bool:
        return node != self.absent and (node == self.present or self.image.is_live(node))

    def storage_of(self, node: NodeId) -> str:
        # The image has the old disk until the registration that is being decided is applied.
        if node == self.absent and self.new_disk:
            return self.new_disk
        return self.image.brokers[node].storage

    def is_voting(self, member: PartitionMember) -> bool:
        """Returns True if the member's broker is live and still has the disk that holds the vote."""
        node = NodeId(member.node_id)
        return self.is_live(node) and self.storage_of(node) == member.storage


class Loss(enum.Enum):
    """The most that a broker may have lost when its last process ended."""

    NOT_SYNCED = enum.auto()
    """The broker may have lost records that were not fsynced."""
    ACKNOWLEDGED = enum.auto()
    """The broker may have lost records that it had acknowledged, too."""
    DISK = enum.auto()


@dataclass(frozen=True, slots=True)
class Lost:
    """A broker that comes back after losing data, and the extent of the loss."""

    node: NodeId
    loss: Loss
    epoch: int
    """The broker epoch of the process whose data was lost."""

    def of(self, topic: Topic) -> Lost:
        """Returns the loss for one topic. It includes acknowledged records if the epoch is older than
        `topic.volatile_before`, when acknowledgement from memory may have been allowed."""
        # That life began before the setting was changed last: it may have acknowledged from memory, whatever the
        # setting is now.
        if self.loss is Loss.NOT_SYNCED and self.epoch < topic.volatile_before:
            return replace(self, loss=Loss.ACKNOWLEDGED)
        return self

    def takes_acknowledged(self, rules: TopicConfig) -> bool:
        """Returns True if the broker may have lost records that it had acknowledged, of a topic with the settings
        `rules`."""
        # With `fsynced` whatever was acknowledged is on the disk, and a power cut takes none of it.
        return self.loss is not Loss.NOT_SYNCED or rules.ack_durability == "replicated"
