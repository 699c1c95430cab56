"""A broker's process: one life. It has a disk, knows some image, and plays one role in the partition at a time."""

from __future__ import annotations

from tidelog.replication.isr.events import StartOver, Truncate
from tidelog.replication.isr.follower import IsrFollower
from tidelog.replication.isr.leader import IsrLeader
from tidelog.replication.isr.settlement import Settlement
from tidelog.sim.isr.disk import Disk


class Process:
    """A life of a node. `incarnation` is what names it."""

    def __init__(self, node: int, incarnation: str, disk: Disk) -> None:
        self.node = node
        self.incarnation = incarnation
        self.disk = disk
        self.is_running = True
        self.clean_epoch, disk.clean_epoch = disk.clean_epoch, -1
        """The mark of a clean stop that was found on the disk: it goes with the registration, and is gone."""
        self.broker_epoch = -1
        """The broker epoch of the registration; -1 before it."""
        self.known = -1
        """The number of the image that is in force here."""
        self.core: IsrLeader | IsrFollower | None = None
        self.role_epoch = -1
        """The leader epoch of the role, once it has one; that of a leader which is still settling, too."""
        self.settling: Settlement | None = None
        """It is to lead once it knows what of its log's damaged end was committed."""
        self.member_disks: dict[int, str] = {}
        """The disks of the other members that it asks then, by node."""
        self.high_watermark = disk.high_watermark
        """The high watermark that the last role knew."""
        self.attempts: list[int] = []
        """`AlterPartition`s that are not answered yet."""
        self.truncating: Truncate | StartOver | None = None
        """The change that the disk thread is about to make."""

    @property
    def leading(self) -> IsrLeader | None:
        return self.core if isinstance(self.core, IsrLeader) else None

    @property
    def following(self) -> IsrFollower | None:
        return self.core if isinstance(self.core, IsrFollower) else None

    @property
    def high_watermark_now(self) -> int:
        """It knows that all below is committed, by its role or from before."""
        return self.high_watermark if self.core is None else self.core.high_watermark

    def leave_role(self) -> None:
        """Ends the role: the high watermark that it knew stays, and answers to its requests are ignored."""
        self.high_watermark = self.high_watermark_now
        self.core = self.settling = None
        self.role_epoch = -1
        self.attempts.clear()
