"""What the world of a walk is made of: the cores that ship, or those with a bug that a test plants."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.replication.isr.follower import IsrFollower
from tidelog.replication.isr.leader import IsrLeader
from tidelog.replication.isr.settlement import Settlement
from tidelog.sim.isr.disk import Disk


@dataclass(frozen=True)
class Parts:
    """What the world is made of; a test that plants a bug replaces one."""

    leader: type[IsrLeader] = IsrLeader
    follower: type[IsrFollower] = IsrFollower
    settlement: type[Settlement] = Settlement
    disk: type[Disk] = Disk
    waits_for_metadata: bool = True
    """Answers about in-sync sets count when what was decided before them is in force."""


SHIPPED = Parts()
