"""The parts of the simulated world: the shipped cores, or ones with a bug that a test plants."""

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
    """True if an answer to `AlterPartition` counts only once the metadata before it are applied."""


SHIPPED = Parts()
