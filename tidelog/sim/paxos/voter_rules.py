"""Invariants of changes of voters. The simulator counts majorities itself (`Truth.attempts`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.replication.paxos.apply import Verdict
from tidelog.replication.paxos.events import Applied, Effect, Proposed
from tidelog.replication.paxos.state import Kind, Value
from tidelog.sim.paxos.invariant import Invariant
from tidelog.sim.paxos.truth import Truth

if TYPE_CHECKING:
    from tidelog.sim.paxos.sim_node import SimNode


class QuorumsInForce(Invariant):
    """Checks that each value was chosen by the voters in force at its position. New voters must also have a majority of
    themselves, and differ from the old ones by one voter."""

    name = "quorums in force"
    watches = (Applied,)

    def __init__(self, truth: Truth) -> None:
        super().__init__(truth)
        self._judged = 0

    def check(self, node: SimNode, effect: Effect) -> None:
        truth = self.truth
        while self._judged < len(truth.log):
            self._judge(self._judged, *truth.log[self._judged])
            self._judged += 1

    def _judge(self, position: int, value: Value, verdict: Verdict) -> None:
        truth = self.truth
        terms = [truth.attempts[number].groups for number in truth.chosen_by[position]]
        _, voters = truth.voters_at(position)
        terms = [groups for groups in terms if voters.ids in groups]
        self.require(bool(terms), position, value, "chosen by", truth.chosen_by[position], "voters are", voters.ids)
        if value.kind is Kind.VOTERS and verdict is Verdict.APPLIED:
            fresh = truth.voter_sets[value.digest]
            by_both = any(fresh.ids in groups for groups in terms)
            self.require(by_both, position, value, "chosen by", terms, "not by", fresh.ids)
            steps = max(len(set(fresh.ids) - set(voters.ids)), len(set(voters.ids) - set(fresh.ids)))
            self.require(steps == 1, position, voters.ids, "to", fresh.ids)
            truth.counters["voters are in force"] += 1


class VotersComeAlone(Invariant):
    """Checks that new voters are proposed only when no other proposal of their leader is open, and that the leader
    proposes nothing after them."""

    name = "voters come alone"
    watches = (Proposed,)

    def __init__(self, truth: Truth) -> None:
        super().__init__(truth)
        self._last: dict[int, int] = {}

    def check(self, node: SimNode, effect: Effect) -> None:
        assert isinstance(effect, Proposed)
        number = effect.value.birth
        self.require(effect.position < self._last.get(number, effect.position + 1), node.node, effect, "after voters")
        if effect.value.kind is Kind.VOTERS:
            self._last[number] = effect.position
            applied = node.core.replica.applied.position
            self.require(applied >= effect.position, node.node, effect, "is open from", applied)
