"""The routes of one replica to the others: which broker has which engine id, and the frames that are sent to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.broker.consensus.engine import Engine
from tidelog.broker.consensus.messages import ElectionFrame, PaxosFrame
from tidelog.broker.consensus.routes import Routes
from tidelog.broker.paxos.context import ReplicaIdentity, ReplicaPeers
from tidelog.broker.paxos.messages import AppliedDurable, PartitionFrame
from tidelog.broker.runtime.stats import Stats
from tidelog.model.cluster import Voter
from tidelog.model.ports import Buffer
from tidelog.replication.paxos.events import Applied
from tidelog.replication.paxos.voters import VoterSet


class Links:
    """The routes of one replica to the brokers of the other replicas. `voters` returns the voters in force in
    its log."""

    def __init__(
        self, identity: ReplicaIdentity, peers: ReplicaPeers, voters: Callable[[], VoterSet], stats: Stats
    ) -> None:
        self.leader_node = -1
        """Node id of the leader according to the metadata; -1 if there is none."""
        self.routes = Routes(self._notify)
        self._where = identity.partition_id
        self._node_id = identity.node_id
        self.era = identity.era
        self._peers = peers
        self._voters = voters
        self._stats = stats
        self._holders: tuple[int, ...] = ()
        self._silent: dict[int, None] = {}

    def set_members(self, voters: VoterSet, nodes: Sequence[int]) -> None:
        """Sets the voters and the brokers that hold a replica, as the metadata name them."""
        self.routes.set_voters(voters)
        self._holders = tuple(node for node in nodes if node != self._node_id)

    def post(self, to: int, frame: PaxosFrame, payloads: Sequence[Buffer]) -> None:
        """Sends a frame of the engine to the broker that has the engine id `to`."""
        self.routes.post(to, frame, payloads)

    def _notify(self, node_id: int, frame: PaxosFrame | ElectionFrame, payloads: Sequence[Buffer]) -> None:
        assert isinstance(frame, PaxosFrame)
        self._stats.paxos_frames += 1
        self._peers.notify(
            node_id, PartitionFrame(self._where.topic_id, self._where.partition, frame, self.era), payloads
        )

    def push(self, engine: Engine, applied: Applied) -> None:
        """Sends a chosen value to the replicas without a vote, if this replica leads."""
        if engine.node.coordinator is None:
            return
        voting = [voter.node_id for voter in self._voters().voters]
        # Voters hold what they accepted, and need no more than a notice.
        without = [node for node in self._holders if node not in voting]
        # A replica that moves is copied at the rate of moves, and would get this again when it has come so far.
        learners = [node for node in without if not self._peers.is_held(self._where, node)]
        engine.push(applied, [self.routes.id_of(node) for node in learners])

    def report(self, engine_ids: tuple[int, ...], durable_offset: int) -> None:
        """Reports to the leader, if it is another broker, how far the log here is durable, and the engine ids of this
        disk."""
        if self.leader_node not in (-1, self._node_id):
            where = self._where
            message = AppliedDurable(where.topic_id, where.partition, engine_ids, durable_offset, self.era)
            self._peers.notify(self.leader_node, message)

    def reported(self, node_id: int, engine_ids: tuple[int, ...]) -> None:
        """Notes that the disk of a broker has these engine ids and no others."""
        for voter in self._voters().voters:
            if voter.node_id == node_id:
                self._silent.pop(voter.voter_id, None)
                # The disk says itself that it casts no vote under this id, so no change of members counts on it.
                if voter.voter_id not in engine_ids:
                    self._silent[voter.voter_id] = None

    def is_silent(self, engine_id: int) -> bool:
        """Returns True if a voter's disk has reported that it does not vote under this id."""
        return engine_id in self._silent

    def live(self) -> list[int]:
        """Returns the engine ids of the voters whose brokers are live, this one included."""
        voters, me = self._voters().voters, self._node_id
        return [voter.voter_id for voter in voters if voter.node_id == me or self._peers.is_live(voter.node_id)]

    @property
    def voter_count(self) -> int:
        """The number of voters in force."""
        return len(self._voters().voters)

    def other_voters(self) -> list[Voter]:
        """Returns the voters in force on the other brokers."""
        return [voter for voter in self._voters().voters if voter.node_id != self._node_id]

    def others(self) -> list[int]:
        """Returns the node ids of the other voters."""
        return [voter.node_id for voter in self.other_voters()]

    def holders(self) -> list[int]:
        """Returns the node ids of all other brokers that hold a replica, according to the metadata or the log, live
        ones first."""
        nodes = dict.fromkeys([*self.others(), *self._holders])
        # A broker that is not live may be up all the same, so it is asked too, last.
        return sorted(nodes, key=lambda node: not self._peers.is_live(node))

    def nodes_of(self, engine_ids: tuple[int, ...]) -> list[int]:
        """Returns the node ids of the brokers that have these engine ids; unknown ids are left out."""
        nodes = [self.routes.node_of(engine_id) for engine_id in engine_ids]
        return [node for node in nodes if node is not None]
