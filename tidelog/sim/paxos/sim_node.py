"""A disk that stays, the process on it that comes and goes, and the machine that both stand on."""

from __future__ import annotations

from tidelog.model.cluster import Voter
from tidelog.replication.paxos.events import SetTimer, Timer
from tidelog.replication.paxos.node import PaxosNode
from tidelog.replication.paxos.state import Metadata, StoredLog, Value
from tidelog.replication.paxos.voters import Membership, VoterSet, learner_id
from tidelog.sim.paxos.log_disk import LogDisk


class SimNode:
    """`boot` counts the lives: timers and disk completions of an earlier one mean nothing.

    In a log with a fixed group, a machine keeps its id whatever disk it has. Where voters change, each disk is a node
    of its own, with the voter id that it has or will have; after a wipe it is dead, and the machine goes on as another.
    """

    def __init__(self, node: int, machine: int, founders: VoterSet, window: int) -> None:
        self.node = node
        """The node's id as a voter."""
        self.machine = machine
        self.incarnation = f"{machine}/{node}"
        self.disk = LogDisk(node)
        self.boot = 0
        self.is_up = False
        self.is_dead = False
        """The disk is lost; another node has the machine."""
        self.is_enlisted = founders.find(machine, self.incarnation) is not None
        """It goes by its voter id: it votes, or is about to."""
        self.promised = 0
        """The largest promise this life has written, durable or not."""
        self.pending: dict[int, Value] = {}
        """The values that this life proposed for clients, by position, until they are applied."""
        self.timers: dict[Timer, SetTimer] = {}
        """The ones that run."""
        self._window = window
        self.membership = Membership(founders)
        self.core = PaxosNode(node, founders.majority, StoredLog(Metadata("")), window=window)

    @property
    def engine_id(self) -> int:
        return self.node if self.is_enlisted else learner_id(self.machine)

    def is_alive(self, boot: int) -> bool:
        """Is it still the same life?"""
        return self.is_up and self.boot == boot

    def start(self, voters: VoterSet, position: int) -> None:
        """Begins a life with what the disk holds; the voters are those below its floor."""
        assert not self.is_up and not self.is_dead
        self.is_up = True
        self.boot += 1
        self.promised = self.disk.metadata.promised
        self.pending = {}
        self.timers = {}
        self.membership = Membership(voters, position)
        quorum = self.membership.quorum()
        self.core = PaxosNode(self.engine_id, quorum, self.disk.load(), window=self._window, voters_position=position)

    def stop(self) -> None:
        self.is_up = False


def founding_voters(count: int) -> VoterSet:
    """Voters 1 to `count`, on machines of the same numbers."""
    voters = tuple(Voter(number, number, f"{number}/{number}", "", 0) for number in range(1, count + 1))
    return VoterSet(voters, count + 1)
