"""The invariants of a log that clients could see violated.

Two more are checked in `truth.py`, which depends on them: one value is chosen per position, and each offset is given
out once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.replication.paxos.apply import Verdict
from tidelog.replication.paxos.events import Applied, Effect, Elected, Jumped, Proposed
from tidelog.replication.paxos.releases import EVERY_KEY
from tidelog.replication.paxos.state import Kind
from tidelog.sim.paxos.invariant import Invariant
from tidelog.sim.paxos.truth import Truth

if TYPE_CHECKING:
    from tidelog.sim.paxos.sim_node import SimNode


class AckedIsKept(Invariant):
    """Checks that an acknowledged batch is applied at its position with effect (a *void* value is chosen but has none),
    and that every coordinator elected under a larger ballot has it."""

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
    """Checks that all replicas apply the same values with the same verdicts (applied, void, or nothing to apply), also
    after a restart."""

    name = "applied alike"
    watches = (Applied, Jumped)

    def check(self, node: SimNode, effect: Effect) -> None:
        truth = self.truth
        if isinstance(effect, Jumped):
            prefix = truth.prefixes[effect.floor.position] if effect.floor.position < len(truth.prefixes) else None
            self.require(effect.floor == prefix, node.node, effect, prefix)
        elif isinstance(effect, Applied):
            truth.on_applied(effect)
            self.require(effect.position < len(truth.log), node.node, "leaves out positions", effect)
            self.require(truth.log[effect.position] == (effect.value, effect.verdict), node.node, effect)


class NothingIsInvented(Invariant):
    """Checks that every applied batch was sent by a client."""

    name = "nothing is invented"
    watches = (Applied,)

    def check(self, node: SimNode, effect: Effect) -> None:
        if isinstance(effect, Applied) and effect.value.kind is Kind.APPEND:
            self.require(effect.value.digest in self.truth.offered, node.node, effect)


class OffsetsHaveNoGaps(Invariant):
    """Checks that an applied batch begins at the offset where the one before it ended, unless the log is ordered by
    key. So of a coordinator's proposals all up to some batch take effect, and none after it."""

    name = "offsets have no gaps"
    watches = (Applied,)

    def check(self, node: SimNode, effect: Effect) -> None:
        assert isinstance(effect, Applied)
        is_batch = effect.value.kind is Kind.APPEND and effect.verdict is Verdict.APPLIED
        if is_batch and not self.truth.keys:
            next_offset = self.truth.prefixes[effect.position].next_offset
            self.require(effect.value.base_offset == next_offset, node.node, effect, "after", next_offset)


class KeysHaveNoGaps(Invariant):
    """Checks that a batch of a log that is ordered by key takes effect only if all earlier proposals of its coordinator
    do that have a key in common with it. So an idempotent producer never loses a batch and has the next one
    appended."""

    name = "keys have no gaps"
    watches = (Proposed, Applied)

    def __init__(self, truth: Truth) -> None:
        super().__init__(truth)
        self._proposed: dict[int, list[tuple[int, frozenset[int]]]] = {}

    def check(self, node: SimNode, effect: Effect) -> None:
        assert isinstance(effect, (Proposed, Applied))
        keys = self.truth.keys.get(effect.value.digest)
        if keys is None:
            return
        earlier = self._proposed.setdefault(effect.value.birth, [])
        if isinstance(effect, Proposed):
            earlier.append((effect.position, keys))
        elif effect.verdict is Verdict.APPLIED:
            for position, others in earlier:
                if position < effect.position and _conflict(keys, others):
                    self.require(self.truth.is_in_force(position, effect.value.birth), node.node, effect, position)


def _conflict(keys: frozenset[int], others: frozenset[int]) -> bool:
    return bool(keys & others) or EVERY_KEY in keys or EVERY_KEY in others


OUTCOMES: tuple[type[Invariant], ...] = (
    AckedIsKept,
    AppliedAlike,
    NothingIsInvented,
    OffsetsHaveNoGaps,
    KeysHaveNoGaps,
)
