"""A broker's process: one start of a node. It has a disk, has applied the metadata up to some image, and plays one role
in the partition at a time."""

from __future__ import annotations

from tidelog.replication.isr.events import StartOver, Truncate
from tidelog.replication.isr.follower import IsrFollower
from tidelog.replication.isr.leader import IsrLeader
from tidelog.replication.isr.settlement import Settlement
from tidelog.sim.isr.disk import Disk


class Process:
    """A start of a node, identified by `incarnation`."""

    def __init__(self, node: int, incarnation: str, disk: Disk) -> None:
        self.node = node
        self.incarnation = incarnation
        self.disk = disk
        self.is_running = True
        self.clean_epoch, disk.clean_epoch = disk.clean_epoch, -1
        """Broker epoch in the mark of a clean stop that was found on the disk; it is sent with the registration, and
        erased."""
        self.broker_epoch = -1
        """Broker epoch of the registration; -1 before it."""
        self.applied_image = -1
        """Number of the newest image that this process has applied; -1 before the first."""
        self.core: IsrLeader | IsrFollower | None = None
        self.role_epoch = -1
        """Leader epoch of the current role, also while a new leader has yet to find out what was committed; -1 without
        a role."""
        self.settling: Settlement | None = None
        """State of a leader that has yet to find out which batches of its log's damaged end were committed; None
        otherwise."""
        self.member_disks: dict[int, str] = {}
        """Disks of the other members that a new leader asks which of its damaged batches were committed, by node."""
        self.high_watermark = disk.high_watermark
        """High watermark that the last role knew."""
        self.attempts: list[int] = []
        """Numbers of the `AlterPartition` requests without an answer."""
        self.truncating: Truncate | StartOver | None = None
        """Truncation that the disk thread is about to make."""

    @property
    def leading(self) -> IsrLeader | None:
        return self.core if isinstance(self.core, IsrLeader) else None

    @property
    def following(self) -> IsrFollower | None:
        return self.core if isinstance(self.core, IsrFollower) else None

    @property
    def high_watermark_now(self) -> int:
        """High watermark known to the current role, or to the last one."""
        return self.high_watermark if self.core is None else self.core.high_watermark

    def leave_role(self) -> None:
        """Ends the role: the high watermark stays, and answers to its requests are ignored."""
        self.high_watermark = self.high_watermark_now
        self.core = self.settling = None
        self.role_epoch = -1
        self.attempts.clear()
