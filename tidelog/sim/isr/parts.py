"""The parts of the world of a walk: the cores that ship, or those with a bug that a test plants."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.replication.isr.follower import IsrFollower
from tidelog.replication.isr.leader import IsrLeader
from tidelog.replication.isr.settlement import Settlement
from tidelog.sim.isr.disk import Disk


@dataclass(frozen=True)
class Parts:
    """The classes that the world is built from; a test that plants a bug replaces one."""

    leader: type[IsrLeader] = IsrLeader
    follower: type[IsrFollower] = IsrFollower
    settlement: type[Settlement] = Settlement
    disk: type[Disk] = Disk
    waits_for_metadata: bool = True
    """True if answers about in-sync sets count only when what was decided before them is in force."""


SHIPPED = Parts()
