"""The end of a run: a quorum of nodes is healed, the other nodes stay down, and all that is open must be settled.

Faults that come and go hide a permanent failure to make progress, such as an election that a node disturbs for ever, or
a position that is never filled. So at the end all faults stop for some nodes and never stop for the others. The healed
nodes must then elect a coordinator, acknowledge new batches, and reach the same log, all of them voting, with every
payload that still exists.

This is only required if their disks hold enough. If not, the other nodes are healed, too; and if all nodes together
have lost the last intact copy of a value that may be chosen, then waiting for ever is the correct behaviour.
"""

from __future__ import annotations

from tidelog.replication.paxos.events import Timer, TimerFired
from tidelog.replication.paxos.numbers import NO_NUMBER
from tidelog.replication.paxos.state import UNKNOWN, Kind, Slot, Status
from tidelog.replication.paxos.voters import VoterSet
from tidelog.sim.paxos.sim_node import SimNode
from tidelog.sim.paxos.story import Story
from tidelog.sim.paxos.truth import Violation

ROUNDS_MAX = 60
ROUNDS_WITHOUT_HOPE = 8
"""Rounds after which healing stops if the disks cannot hold enough: enough rounds for an error to show."""
BATCHES = 2


class Healing:
    """The healing phase of one run, after its plan."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._sim = story.sim
        self._turn = 0

    def run(self) -> None:
        """Heals a quorum, or all nodes if a quorum cannot be enough. Raises `Violation` if the healed nodes make no
        progress although their disks hold enough."""
        sim = self._sim
        core = self._draw_core()
        if not self._is_enough(core) or not self._is_recoverable(core):
            core = list(sim.machines.values())
        sim.network.heal()
        sim.traps.clear()
        self._isolate(core)
        if self._converges(core):
            sim.truth.counters["a quorum is healed"] += 1
        elif self._is_recoverable(core):
            raise Violation(f"a healed quorum settles: {[node.node for node in core]} do not")
        else:
            sim.truth.counters["the last copies are lost"] += 1

    def _draw_core(self) -> list[SimNode]:
        """Returns voting nodes, no more than are needed for a majority of every voter set that may be in force."""
        sim = self._sim
        voters = [node for node in sim.machines.values() if node.disk.metadata.status is Status.VOTING]
        core: set[int] = set()
        for node in sim.rng.sample(voters, len(voters)):
            if any(node.node in needed.ids and not _is_majority(core, needed) for needed in sim.truth.needed_voters()):
                core.add(node.node)
        return [node for node in voters if node.node in core]

    def _isolate(self, core: list[SimNode]) -> None:
        for node in self._sim.machines.values():
            if node.is_up and (node not in core or node.core.replica.is_halted):
                self._sim.stop(node, self._sim.scenario.swarm.mood)
        for node in core:
            self._story.start(node)

    def _converges(self, core: list[SimNode]) -> bool:
        sim = self._sim
        acked_target = len(sim.truth.acked) + BATCHES
        for turn in range(ROUNDS_MAX):
            if turn == ROUNDS_WITHOUT_HOPE and not self._is_recoverable(core):
                return False
            sim.run_until(sim.now + 3 * sim.scenario.swarm.round_trip)
            leaders = [node for node in core if node.is_up and node.core.coordinator is not None]
            if not leaders:
                self._elect_next(core)
                if turn > ROUNDS_MAX // 2:  # who may be elected here, a copy may have to tell
                    self._hurry(core)
            elif len(sim.truth.acked) < acked_target:
                self._story.append(max(leaders, key=lambda node: node.core.replica.metadata.issued), 1)
            elif self._is_settled(core):
                return True
            else:
                self._hurry(core)
        return False

    def _hurry(self, core: list[SimNode]) -> None:
        """Fires the catch-up timers of the nodes, which may be long."""
        for node in core:
            if node.is_up:
                self._sim.step(node, TimerFired(Timer.CATCHUP))

    def _elect_next(self, core: list[SimNode]) -> None:
        self._turn += 1
        node = core[self._turn % len(core)]
        self._story.elect(node, node.boot)

    def _is_settled(self, core: list[SimNode]) -> bool:
        acked = max(self._sim.truth.acked, default=-1)
        _, newest = self._sim.truth.voters[-1]
        voters = [node for node in core if node.node in newest.ids]
        ends = {node.core.replica.applied.position for node in voters}
        return (
            len(ends) == 1
            and min(ends) > acked
            and all(node.core.replica.metadata.status is Status.VOTING for node in voters)
            and not any(self._can_be_repaired(node, voters) for node in voters)
        )

    def _can_be_repaired(self, node: SimNode, core: list[SimNode]) -> bool:
        """Returns True if the node lacks a payload that another node of the core has."""
        slots = [peer.core.replica.slots.get(position) for position in node.core.replica.faulty() for peer in core]
        return any(slot is not None and not slot.faulty for slot in slots)

    def _is_recoverable(self, nodes: list[SimNode]) -> bool:
        """Returns True if these disks hold enough to settle every position, whichever quorum a coordinator asks."""
        needed = self._sim.truth.needed_voters()
        voters = [node for node in nodes if node.disk.metadata.status is Status.VOTING]
        voter_ids = needed[0].ids  # later voters are not, until somebody knows of them
        slots = [slot for node in nodes if node.node in voter_ids for slot in node.disk.slots.values()]
        floor = max((node.disk.floor.position for node in nodes), default=0)
        for position in sorted({slot.position for slot in slots if slot.position >= floor}):
            here = [slot for slot in slots if slot.position == position]
            learned = [slot for slot in here if slot.learned]
            if learned and not _is_readable(learned):
                return False
            if not learned and position < self._sim.truth.settled_position:
                return False  # who forgot it, forgot who votes; and who voted then may be gone
            if not learned and not _may_be_settled(voters, here, position, needed):
                return False
        is_new = all(node.disk.incarnations == 1 for node in nodes) and not self._sim.scenario.swarm.spares
        return is_new or self._is_enough(nodes)

    def _is_enough(self, nodes: list[SimNode]) -> bool:
        """Returns True if the voting nodes among these are a majority of every voter set that may be in force."""
        ids = {node.node for node in nodes if node.disk.metadata.status is Status.VOTING}
        return all(_is_majority(ids, members) for members in self._sim.truth.needed_voters())


def _is_majority(nodes: set[int], voters: VoterSet) -> bool:
    return 2 * len(nodes.intersection(voters.ids)) > len(voters.ids)


def _is_readable(learned: list[Slot]) -> bool:
    """Returns False if the learned slots of a position contain a change of voters that no voter can read."""
    return learned[0].value.kind is not Kind.VOTERS or any(not slot.faulty for slot in learned)


def _is_blocked(nodes: set[int], voters: VoterSet) -> bool:
    """Returns True if the voters without these nodes are no majority."""
    return not _is_majority(set(voters.ids) - nodes, voters)


def _may_be_settled(voters: list[SimNode], here: list[Slot], position: int, needed: list[VoterSet]) -> bool:
    """Returns True if a coordinator can settle the position. Either a majority has accepted the same known value; or
    the value of some ballot (or no value) is readable somewhere, and every majority includes a node that has accepted
    nothing newer."""
    held = {node.node: node.disk.slots[position].number for node in voters if position in node.disk.slots}
    for number in sorted({NO_NUMBER, *(slot.number for slot in here)}):
        names = {slot.value for slot in here if slot.number == number and slot.value != UNKNOWN}
        is_readable = number == NO_NUMBER or any(slot.value in names and not slot.faulty for slot in here)
        deniers = {node.node for node in voters if held.get(node.node, NO_NUMBER) <= number}
        if is_readable and all(_is_blocked(deniers, members) for members in needed):
            return True
        accepted = {node for node, accepted_number in held.items() if accepted_number == number != NO_NUMBER}
        is_named = any(name.kind is not Kind.VOTERS for name in names)
        if is_named and all(_is_majority(accepted, members) for members in needed):
            return True
    return False
