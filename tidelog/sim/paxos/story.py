"""The execution of a run's plan: the founding, the planned actions, and the reactions of operators.

A node that lost an election may try again. An election or a rejoin that takes too long is given up; the next attempt
has a new ballot. The simulator chooses the ballots for rejoins, since it knows all that were issued; in a real cluster
the controller does this.

At most so many disks are wiped at a time that a quorum of the others is left: with more, data is lost by any rules.
"""

from __future__ import annotations

from collections import Counter

from tidelog.replication.paxos import events
from tidelog.replication.paxos.numbers import next_number
from tidelog.replication.paxos.releases import EVERY_KEY
from tidelog.replication.paxos.state import Status
from tidelog.sim.kit.seeds import stream
from tidelog.sim.paxos import actions
from tidelog.sim.paxos.changes import Changes
from tidelog.sim.paxos.sim_node import SimNode
from tidelog.sim.paxos.simulation import Simulation

CLUSTER_ID = "sim"
ATTEMPTS_MAX = 5
"""Maximum elections that a node attempts in a row."""
EVERY_KEY_SHARE = 0.05
"""Share of the batches that conflict with all others, in a log that is ordered by key."""


class Story:
    """Drives a simulation through the plan of its scenario."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self._swarm = sim.scenario.swarm
        self._batches = 0
        self._keys = stream(sim.scenario.seed, "keys of batches")
        self._change = Changes(sim, self.start)
        self._attempts: Counter[SimNode] = Counter()
        sim.on_changed = lambda node: self.elect(node, node.boot)
        sim.on_lost = self._on_lost
        sim.on_trap = self._on_trap

    def tell(self) -> None:
        """Runs the plan to its end, and one round trip longer."""
        sim = self.sim
        if self._swarm.is_founded:
            voters = [node for node in sim.nodes.values() if node.is_enlisted]
            founders = tuple((node.node, node.disk.metadata.incarnation) for node in voters)
            for node in voters:
                node.disk.initialise(founders)
        for node in sim.nodes.values():
            self.start(node)
        sim.run_until(0 if self._swarm.is_founded else sim.rng.randrange(6 * self._swarm.round_trip))
        begin = sim.now
        for time, action in sim.scenario.steps:
            sim.run_until(begin + time)
            self._perform(action)
        sim.run_until(sim.now + self._swarm.round_trip)

    # -- lives -------------------------------------------------------------------------------------------------------

    def start(self, node: SimNode) -> None:
        """Starts a node's process. If it does not vote, an operator founds the group on it or lets it rejoin."""
        if node.is_up or node.is_dead:
            return
        self.sim.start(node)
        if self._swarm.spares:
            return
        if node.disk.metadata.status is Status.EMPTY and node.disk.incarnations == 1:
            self.sim.step(node, events.Found(CLUSTER_ID))
        elif node.disk.metadata.status in {Status.EMPTY, Status.RECOVERING}:
            self.sim.after(self.sim.between(self._swarm.round_trip), self._rejoin, node, node.boot)

    def stop(self, node: SimNode, ticks: int) -> None:
        if node.is_up:
            self.sim.stop(node, self._swarm.mood)
            self.sim.after(ticks, self.start, node)

    def _on_trap(self, node: SimNode, trap: actions.CrashAfter) -> None:
        self.stop(node, trap.ticks)

    def _rejoin(self, node: SimNode, boot: int) -> None:
        """Makes a node without a vote attempt to rejoin, and tries again if that takes too long. (If it fails,
        `_on_lost` tries again.)"""
        if node.is_up and node.boot == boot and node.core.replica.metadata.status is not Status.VOTING:
            self.sim.truth.counters["a rejoin begins"] += 1
            number = self.fence_number(node)
            self.sim.step(node, events.Rejoin(number))
            self.sim.after(
                self.sim.between(self._swarm.patience * self._swarm.round_trip), self._retry, node, boot, number
            )

    def _retry(self, node: SimNode, boot: int, number: int) -> None:
        if node.core.replica.metadata.issued == number:
            self._rejoin(node, boot)

    def fence_number(self, node: SimNode) -> int:
        """Returns a ballot of this node that is larger than every ballot issued so far."""
        return next_number(self.sim.truth.issued, node.node)

    # -- elections ---------------------------------------------------------------------------------------------------

    def elect(self, node: SimNode, boot: int) -> None:
        """Starts an election of this node, which is given up if it takes too long."""
        core = node.core
        if not node.is_up or node.boot != boot or core.coordinator is not None or core.replica.is_halted:
            return
        if core.replica.metadata.status is Status.VOTING:
            number = core.next_number()
            self.sim.step(node, events.Elect(number))
            self.sim.after(
                self.sim.between(self._swarm.patience * self._swarm.round_trip), self._give_up, node, boot, number
            )

    def _give_up(self, node: SimNode, boot: int, number: int) -> None:
        if node.is_up and node.boot == boot and node.core.replica.metadata.issued == number:
            if node.core.coordinator is None:
                self.sim.step(node, events.Demote())
            else:
                self._attempts[node] = 0

    def _on_lost(self, node: SimNode, number: int) -> None:
        if node.core.replica.metadata.issued != number:  # another attempt has begun already
            return
        if node.core.replica.metadata.status is Status.RECOVERING:
            self.sim.after(self.sim.between(self._swarm.round_trip), self._retry, node, node.boot, number)
            return
        self._attempts[node] += 1
        if self._attempts[node] < ATTEMPTS_MAX and self.sim.rng.random() < self._swarm.ambition:
            self.sim.after(self.sim.between(self._swarm.round_trip), self.elect, node, node.boot)

    # -- the plan ----------------------------------------------------------------------------------------------------

    def _perform(self, action: actions.Action) -> None:
        match action:
            case actions.AppendSome() | actions.TruncateSome() | actions.DemoteOne() | actions.ChangeVoters():
                self._ask_coordinator(action)
            case actions.ElectNode(machine):
                node = self.sim.machines[machine]
                self._attempts[node] = 0
                self.elect(node, node.boot)
            case actions.CutLink() | actions.IsolateNode():
                self._cut(action)
            case actions.Connect(links):
                self.sim.network.connect(links)
            case _:
                self._strike(action)

    def _ask_coordinator(
        self, action: actions.AppendSome | actions.TruncateSome | actions.DemoteOne | actions.ChangeVoters
    ) -> None:
        coordinators = [node for node in self.sim.nodes.values() if node.is_up and node.core.coordinator is not None]
        if not coordinators:
            return
        node = coordinators[action.pick % len(coordinators)]
        match action:
            case actions.AppendSome(_, batches, records):
                for _ in range(2 * batches if self._swarm.keys else batches):
                    self.append(node, records)
            case actions.TruncateSome(_, share):
                replica = node.core.replica
                begin = replica.begin + int(share * (replica.applied.position - replica.begin + 1))
                self.sim.step(node, events.Delete(int(share * replica.applied.next_offset)))
                self.sim.step(node, events.Truncate(begin))
            case actions.DemoteOne():
                self.sim.step(node, events.Demote())
            case actions.ChangeVoters():
                self._change.begin(node, action)

    def append(self, node: SimNode, records: int) -> None:
        """Sends a unique batch of a client to a leader. Does nothing while the leader changes the voters."""
        if node.membership.phase is not None:
            return
        self._batches += 1
        digest = b"%d" % self._batches
        self.sim.truth.offered.add(digest)
        if not self._swarm.keys:
            self.sim.step(node, events.Append(records, digest, is_in_order=True))
            return
        self.sim.truth.keys[digest] = keys = self._draw_keys()
        self.sim.step(node, events.Append(records, digest, keys=keys))

    def _draw_keys(self) -> frozenset[int]:
        """Draws the keys of a batch: mostly few, now and then all."""
        count = self._keys.choice((0, 1, 1, 1, 1, 2, 3, self._swarm.keys, self._swarm.keys))
        if self._keys.random() < EVERY_KEY_SHARE:
            return frozenset({EVERY_KEY})
        return frozenset(self._keys.randrange(self._swarm.keys) for _ in range(count))

    def _strike(self, action: actions.Action) -> None:
        match action:
            case actions.CrashNode(number, ticks):
                self.stop(self.sim.machines[number], ticks)
            case actions.CrashAfter():
                self.sim.traps.append(action)
            case actions.CrashAll(ticks):
                for node in self.sim.machines.values():
                    self.stop(node, self.sim.between(ticks))
            case actions.WipeNode():
                self._wipe(self.sim.machines[action.node], action)
            case actions.FailStore(number, ticks):
                node = self.sim.machines[number]
                if node.is_up and not node.core.replica.is_halted:
                    self.sim.step(node, events.StoreFailed())
                    self.sim.after(ticks, self.stop, node, 1)
            case actions.DamageSlot(number) | actions.LoseName(number):
                self._damage(self.sim.machines[number], action)
            case actions.GiveUpVotes(number, voters) if self.sim.machines[number].is_up:
                self.sim.step(self.sim.machines[number], events.VotesLost(voters))

    def _wipe(self, node: SimNode, action: actions.WipeNode) -> None:
        if self._swarm.spares:
            self._change.wipe(node, action)
            return
        lost = [
            n
            for n in self.sim.nodes.values()
            if n.disk.incarnations > 1 and n.disk.metadata.status is not Status.VOTING
        ]
        if not node.is_up or node in lost or len(self.sim.nodes) - len(lost) - 1 < self.sim.truth.quorum_size:
            return
        self.sim.truth.counters["a disk is wiped"] += 1
        self.stop(node, action.ticks)
        node.disk.wipe()
        if action.is_founding:
            self.sim.after(action.ticks, self._found_again, node)

    def _found_again(self, node: SimNode) -> None:
        """Founds the group again on a node whose disk was lost, as an operator does who takes the disk for a new
        one."""
        if node.is_up and node.core.replica.metadata.status is Status.EMPTY:
            self.sim.truth.counters["a lost disk is taken for a new one"] += 1
            self.sim.step(node, events.Found(CLUSTER_ID))

    def _damage(self, node: SimNode, action: actions.DamageSlot | actions.LoseName) -> None:
        if isinstance(action, actions.LoseName):
            self.stop(node, action.ticks)
            if node.disk.lose_name(action.pick) is not None:
                self.sim.truth.counters["a slot has lost its value's name"] += 1
            return
        position = node.disk.damage(action.pick)
        if position is not None:
            self.sim.truth.counters["a payload is damaged"] += 1
            if node.is_up:
                self.sim.step(node, events.Damaged(position))

    def _cut(self, action: actions.CutLink | actions.IsolateNode) -> None:
        network, until = self.sim.network, self.sim.now + action.ticks
        if isinstance(action, actions.CutLink):
            network.cut(action.source, action.target, until)
            return
        for machine in self.sim.machines:
            if machine != action.node:
                if action.inbound:
                    network.cut(machine, action.node, until)
                if action.outbound:
                    network.cut(action.node, machine, until)
