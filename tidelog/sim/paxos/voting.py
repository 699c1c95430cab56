"""Changes of voters, as the shell (the asyncio code around the pure core) makes them in a broker: passes events to each
node's `Membership`, and carries out its decisions.

The simulator plays the controller too: it says who is to be added or removed, gives out voter ids, and tells the new
voter its id before the leader asks for its vote. Everything else follows from the values that nodes apply, and find in
elections.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tidelog.replication.paxos import events
from tidelog.replication.paxos.apply import Verdict
from tidelog.replication.paxos.state import Kind, Status
from tidelog.replication.paxos.voters import InvalidVoters, Phase, VoterSet
from tidelog.sim.paxos.scenario import Scenario
from tidelog.sim.paxos.sim_node import SimNode
from tidelog.sim.paxos.truth import Truth


class Shell(Protocol):
    """The interface of `Simulation` that `Voting` uses."""

    scenario: Scenario
    truth: Truth
    on_changed: Callable[[SimNode], None]

    def after(self, ticks: int, call: Callable[..., None], *args: Any) -> None: ...

    def step(self, node: SimNode, event: events.Event) -> None: ...


class Voting:
    """The changes of voters of all nodes of a run."""

    def __init__(self, sim: Shell) -> None:
        self._sim = sim

    # -- what an engine says -----------------------------------------------------------------------------------------

    def on_applied(self, node: SimNode, effect: events.Applied) -> None:
        voters = None
        if effect.value.kind is Kind.VOTERS and effect.verdict is Verdict.APPLIED and effect.is_faulty:
            node.membership.on_unread(effect.position)
            self._saw("voters are applied unread")
        elif effect.value.kind is Kind.VOTERS:
            voters = self._sim.truth.voter_sets[effect.value.digest]
        was_leading = node.membership.phase is Phase.WRITING
        if node.membership.on_applied(effect.position, voters, effect.verdict):
            self._sim.after(0, self._go_by, node, node.boot, was_leading and node.membership.phase is None)

    def on_repaired(self, node: SimNode, effect: events.Repaired) -> None:
        slot = node.core.replica.slots.get(effect.position)
        if slot is None or slot.value.kind is not Kind.VOTERS or slot.position >= node.core.replica.applied.position:
            return
        voters = self._sim.truth.voter_sets[slot.value.digest]
        _, verdict = self._sim.truth.log[effect.position]
        if node.membership.on_applied(effect.position, voters, verdict):
            self._sim.after(0, self._go_by, node, node.boot, False)

    def on_jumped(self, node: SimNode, effect: events.Jumped) -> None:
        """Handles a node that has skipped positions: the simulator gives it the voters of its new position at once, as
        a snapshot would."""
        node.membership.on_jumped(effect.floor.position)
        position, voters = self._sim.truth.voters_at(effect.floor.position)
        if node.membership.on_snapshot(voters, position, effect.floor.position):
            self._sim.after(0, self._go_by, node, node.boot, False)

    def on_found(self, node: SimNode, effect: events.VotersFound) -> None:
        voters = self._sim.truth.voter_sets[effect.value.digest]
        if node.membership.on_found(effect.position, effect.value, voters):
            self._sim.after(0, self._go_by, node, node.boot, False)

    def on_elected(self, node: SimNode, effect: events.Elected) -> None:
        self._sim.truth.on_elected(effect.number)
        voters = node.membership.write(effect.number)
        if voters is not None:
            self._saw("a change of voters is proposed")
            self._sim.after(0, self._append, node, node.boot, voters)

    def on_lost(self, node: SimNode, effect: events.Lost) -> None:
        if node.membership.on_lost(effect.number):
            self._saw("a change of voters is lost with its leader")
            self._sim.after(0, self._go_by, node, node.boot, False)

    # -- what to do about it -----------------------------------------------------------------------------------------

    def _append(self, node: SimNode, boot: int, voters: VoterSet) -> None:
        if node.is_alive(boot):
            self._sim.step(node, events.Append(0, digest_of(voters), Kind.VOTERS))

    def _go_by(self, node: SimNode, boot: int, is_to_lead: bool) -> None:
        """Tells a node's core which voters are in force, and its own id as a voter if it is one; makes it a voter if it
        never voted. Does nothing if the process numbered `boot` has ended. With `is_to_lead` it also notes that the
        change of voters is complete."""
        if not node.is_alive(boot):
            return
        voter = node.membership.voter_of(node.machine, node.incarnation)
        if voter is not None and node.disk.metadata.status is Status.EMPTY:
            self.enlist(node)
        else:
            self._sim.step(node, node.membership.reconfigure(node.engine_id))
        if is_to_lead:
            self._saw("voters are changed")
            self._sim.on_changed(node)

    def enlist(self, node: SimNode) -> None:
        """Makes a learner a voter: gives it its voter id, then the right to vote."""
        node.is_enlisted = True
        self._sim.step(node, node.membership.reconfigure(node.engine_id))
        self._sim.step(node, events.Enlist())

    # -- a change ----------------------------------------------------------------------------------------------------

    def begin(self, node: SimNode, voters: VoterSet) -> bool:
        """Starts a change of voters at a leader, which waits for its open proposals first. Returns False if that is
        impossible."""
        coordinator = node.core.coordinator
        if coordinator is None:
            return False
        try:
            node.membership.begin(voters, coordinator.number)
        except InvalidVoters:
            self._saw("a second change of voters is refused", not node.membership.is_settled)
            return False
        self._drain(node, node.boot, coordinator.number)
        return True

    def _drain(self, node: SimNode, boot: int, number: int) -> None:
        coordinator = node.core.coordinator
        if not node.is_alive(boot) or coordinator is None or coordinator.number != number:
            return
        if not coordinator.is_drained:
            self._sim.after(1 + self._sim.scenario.swarm.round_trip // 4, self._drain, node, boot, number)
            return
        self.join(node)

    def join(self, node: SimNode) -> None:
        """Elects the leader again by a quorum of both old and new voters."""
        fresh = node.core.next_number()
        voters = node.membership.join(fresh)
        self._sim.truth.voter_sets[digest_of(voters)] = voters
        self._sim.truth.joined.append((fresh, voters))
        self._sim.step(node, events.Demote())
        self._sim.step(node, node.membership.reconfigure(node.engine_id))
        self._sim.step(node, events.Elect(fresh))

    def _saw(self, name: str, is_seen: bool = True) -> None:
        if is_seen:
            self._sim.truth.counters[name] += 1


def digest_of(voters: VoterSet) -> bytes:
    """Returns a name of a voter set: its voter ids, which identify the disks."""
    return ",".join(map(str, voters.ids)).encode()
