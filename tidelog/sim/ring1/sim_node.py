"""One machine: a disk that stays, and a process that comes and goes."""

from __future__ import annotations

from tidelog.replication.paxos.events import SetTimer, Timer
from tidelog.replication.paxos.node import PaxosNode
from tidelog.replication.paxos.state import Metadata, StoredLog, Value
from tidelog.replication.quorum import Majority
from tidelog.sim.ring1.log_disk import LogDisk


class SimNode:
    """`boot` counts the lives: timers and disk completions of an earlier one mean nothing."""

    def __init__(self, node: int, quorum: Majority, window: int) -> None:
        self.node = node
        self.disk = LogDisk(node)
        self.boot = 0
        self.is_up = False
        self.promised = 0
        """The largest promise this life has written, durable or not."""
        self.pending: dict[int, Value] = {}
        """What this life proposed for clients, by position, until it is applied."""
        self.timers: dict[Timer, SetTimer] = {}
        """The ones that run."""
        self._quorum = quorum
        self._window = window
        self.core = PaxosNode(node, quorum, StoredLog(Metadata("")), window=window)

    def start(self) -> None:
        """Begins a life with what the disk holds."""
        assert not self.is_up
        self.is_up = True
        self.boot += 1
        self.promised = self.disk.metadata.promised
        self.pending = {}
        self.timers = {}
        self.core = PaxosNode(self.node, self._quorum, self.disk.load(), window=self._window)

    def stop(self) -> None:
        self.is_up = False
