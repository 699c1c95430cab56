"""The invariants that clients can see of a log, and that hold whatever happens.

Two more of the kind are in the truth itself (`truth.py`), since it cannot be told without them: that one value is
chosen per position, and that offsets are given out once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.replication.paxos.apply import Verdict
from tidelog.replication.paxos.events import Applied, Effect, Elected, Jumped
from tidelog.replication.paxos.state import Kind
from tidelog.sim.paxos.invariant import Invariant

if TYPE_CHECKING:
    from tidelog.sim.paxos.sim_node import SimNode


class AckedIsKept(Invariant):
    """Checks that what was acknowledged is in the log, at its position, and counts; every coordinator with a larger
    number has it.
    """

    name = "acked is kept"
    watches = (Applied, Elected)

    def check(self, node: SimNode, effect: Effect) -> None:
        acked = self.truth.acked
        if isinstance(effect, Applied) and effect.position in acked:
            self.require(effect.value == acked[effect.position], node.node, effect, acked[effect.position])
            self.require(effect.verdict is Verdict.APPLIED, node.node, effect)
        elif isinstance(effect, Elected):
            older = [position for position, value in acked.items() if value.birth < effect.number]
            self.require(max(older, default=-1) < node.core.replica.applied.position, node.node, effect, older)


class AppliedAlike(Invariant):
    """Every replica applies the same values with the same verdicts, now and after every restart."""

    name = "applied alike"
    watches = (Applied, Jumped)

    def check(self, node: SimNode, effect: Effect) -> None:
        truth = self.truth
        if isinstance(effect, Jumped):
            known = truth.prefixes[effect.floor.position] if effect.floor.position < len(truth.prefixes) else None
            self.require(effect.floor == known, node.node, effect, known)
        elif isinstance(effect, Applied):
            truth.on_applied(effect)
            self.require(effect.position < len(truth.log), node.node, "leaves out positions", effect)
            self.require(truth.log[effect.position] == (effect.value, effect.verdict), node.node, effect)


class NothingIsInvented(Invariant):
    """Checks that what is applied was sent by a client, or is the log's own."""

    name = "nothing is invented"
    watches = (Applied,)

    def check(self, node: SimNode, effect: Effect) -> None:
        if isinstance(effect, Applied) and effect.value.kind is Kind.APPEND:
            self.require(effect.value.digest in self.truth.offered, node.node, effect)


class OffsetsHaveNoGaps(Invariant):
    """Checks that of a coordinator's proposals all count up to some batch, and none behind it."""

    name = "offsets have no gaps"
    watches = (Applied,)

    def check(self, node: SimNode, effect: Effect) -> None:
        assert isinstance(effect, Applied)
        if effect.value.kind is Kind.APPEND and effect.verdict is Verdict.APPLIED:
            next_offset = self.truth.prefixes[effect.position].next_offset
            self.require(effect.value.base_offset == next_offset, node.node, effect, "after", next_offset)


OUTCOMES: tuple[type[Invariant], ...] = (AckedIsKept, AppliedAlike, NothingIsInvented, OffsetsHaveNoGaps)
