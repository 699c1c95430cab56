"""Changes of voters by simulated operators, and disks that are lost meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.model.cluster import Voter
from tidelog.replication.paxos.events import Demote
from tidelog.replication.paxos.state import Status
from tidelog.replication.paxos.voters import InvalidVoters, Phase, VoterSet
from tidelog.sim.paxos.actions import ChangeVoters, WipeNode
from tidelog.sim.paxos.sim_node import SimNode
from tidelog.sim.paxos.simulation import Simulation

VOTERS_MAX = 5


class Changes:
    """The changes of voters in one run. `start` is called with a node that has a new disk."""

    def __init__(self, sim: Simulation, start: Callable[[SimNode], None]) -> None:
        self._sim = sim
        self._start = start

    def begin(self, leader: SimNode, action: ChangeVoters) -> None:
        """Starts a change of voters at a leader, if the planned kind of change is possible."""
        voters = leader.membership.voters
        fresh = self._candidate(voters, action.choice) if action.kind != "remove" else None
        leaves = self._leaving(voters, action.choice) if action.kind != "add" else None
        if (fresh is None and leaves is None) or (
            fresh is not None and leaves is None and len(voters.ids) >= VOTERS_MAX
        ):
            return
        self._change(leader, fresh, leaves)

    def _candidate(self, voters: VoterSet, choice: int) -> SimNode | None:
        """Returns a running node whose disk does not vote; None if there is none."""
        nodes = [node for node in self._sim.machines.values() if node.is_up and node.node not in voters.ids]
        return nodes[choice % len(nodes)] if nodes else None

    def _leaving(self, voters: VoterSet, choice: int) -> int:
        """Returns the voter id to remove: one whose disk is lost, if there is one."""
        lost = [voter for voter in voters.ids if self._sim.is_lost(voter)]
        return (lost or voters.ids)[choice % len(lost or voters.ids)]

    def _change(self, leader: SimNode, fresh: SimNode | None, leaves: int | None) -> None:
        voters = leader.membership.voters
        if fresh is not None and fresh.node < voters.next_voter_id:
            if any(fresh.node in needed.ids for needed in self._sim.truth.needed_voters()):
                return  # under its old id it may still have to vote
            self._sim.truth.counters["a disk votes again under another id"] += fresh.is_enlisted
            self._sim.rename(fresh)
            self._sim.step(fresh, fresh.membership.reconfigure(fresh.engine_id))
        voter = Voter(fresh.node, fresh.machine, fresh.incarnation, "", 0) if fresh is not None else None
        try:
            new_voters = voters.with_change(add=voter, remove=leaves)
        except InvalidVoters:  # the last one, or a machine that has a voter already
            return
        if not self._sim.voting.begin(leader, new_voters):
            return
        self._sim.truth.counters["a leader leaves the voters"] += leader.node == leaves
        if fresh is not None and fresh.disk.metadata.status is Status.EMPTY:
            self._sim.voting.enlist(fresh)
        patience = self._sim.scenario.swarm.patience * self._sim.scenario.swarm.round_trip
        self._sim.after(self._sim.between(patience), self._give_up, leader, leader.boot)

    def _give_up(self, leader: SimNode, boot: int) -> None:
        if leader.is_alive(boot) and leader.membership.phase is not None:
            is_early = leader.membership.phase is not Phase.WRITING
            self._sim.truth.counters["a change of voters is given up"] += is_early
            self._sim.step(leader, Demote())

    def wipe(self, node: SimNode, action: WipeNode) -> None:
        """Destroys a node's disk, unless some voter set that is or may be in force would be left without a majority."""
        for voters in self._sim.truth.needed_voters():
            left = [voter for voter in voters.ids if voter != node.node and not self._sim.is_lost(voter)]
            if node.node in voters.ids and 2 * len(left) <= len(voters.ids):
                return
        if node.is_up:
            self._sim.truth.counters["a disk is wiped"] += 1
            self._sim.stop(node, self._sim.scenario.swarm.mood)
            self._sim.after(action.ticks, self._start, self._sim.replace(node))
