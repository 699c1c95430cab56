"""A simulated node: a disk that persists, the processes that run on it one after the other, and its machine."""

from __future__ import annotations

from tidelog.model.cluster import Voter
from tidelog.replication.paxos.events import SetTimer, Timer
from tidelog.replication.paxos.node import PaxosNode
from tidelog.replication.paxos.state import Metadata, StoredLog, Value
from tidelog.replication.paxos.voters import Membership, VoterSet, learner_id
from tidelog.sim.paxos.log_disk import LogDisk


class SimNode:
    """A disk with its current process. `boot` counts the processes: timers and disk completions of an earlier one are
    ignored.

    In a log with a fixed group, a machine keeps its node id whatever disk it has. Where voters change, each disk is a
    node of its own, with the voter id that it has or will have; after its disk is wiped, the node is dead and the
    machine continues as another node.
    """

    def __init__(self, node: int, machine: int, founders: VoterSet, window: int) -> None:
        self.node = node
        """Voter id of the node."""
        self.machine = machine
        self.incarnation = f"{machine}/{node}"
        self.disk = LogDisk(node)
        self.boot = 0
        self.is_up = False
        self.is_dead = False
        """True if the disk is lost; another node has the machine."""
        self.is_enlisted = founders.find(machine, self.incarnation) is not None
        """True if the node uses its voter id, because it votes or is about to."""
        self.promised = 0
        """Largest ballot that the current process has promised, durable or not."""
        self.pending: dict[int, Value] = {}
        """Values that the current process proposed for clients, by position, until they are applied."""
        self.timers: dict[Timer, SetTimer] = {}
        """Running timers."""
        self.window = window
        self.membership = Membership(founders)
        self.core = PaxosNode(node, founders.majority, StoredLog(Metadata("")), window=window)

    @property
    def engine_id(self) -> int:
        return self.node if self.is_enlisted else learner_id(self.machine)

    def is_alive(self, boot: int) -> bool:
        """Returns True if the process with this boot number still runs."""
        return self.is_up and self.boot == boot

    def start(self, voters: VoterSet, position: int) -> None:
        """Starts a process on the content of the disk. `voters` are those in force at the beginning of its log;
        `position` is the log position of the change that put them into force."""
        assert not self.is_up and not self.is_dead
        self.is_up = True
        self.boot += 1
        self.promised = self.disk.metadata.promised
        self.pending = {}
        self.timers = {}
        self.membership = Membership(voters, position)
        quorum = self.membership.quorum()
        self.core = PaxosNode(self.engine_id, quorum, self.disk.load(), window=self.window, voters_position=position)

    def stop(self) -> None:
        self.is_up = False


def founding_voters(count: int) -> VoterSet:
    """Returns voters 1 to `count`, on machines with the same numbers."""
    voters = tuple(Voter(number, number, f"{number}/{number}", "", 0) for number in range(1, count + 1))
    return VoterSet(voters, count + 1)
