"""The rules of a classic group (`tidelog.sim.groups.rules`), checked in a cluster: each violation is reported at the
event that caused it, and none once faults have destroyed what the group had committed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidelog.model.classic_groups import JoinAnswer, SyncAnswer
from tidelog.sim.cluster.truth import Truth
from tidelog.sim.groups.rules import Attempt, Rules


class ClusterRules(Rules):
    """Checks the rules of one run. `is_gone` returns True if a fault has destroyed the last copy of a part of the
    offsets topic."""

    def __init__(self, truth: Truth, is_gone: Callable[[], bool]) -> None:
        super().__init__()
        self.sync_answered = asyncio.Event()
        """Event that is set whenever a sync is answered."""
        self._truth = truth
        self._is_gone = is_gone

    def joined(self, identity: str, answer: JoinAnswer) -> None:
        self._truth.note("joined", identity, answer.generation, answer.leader)
        super().joined(identity, answer)

    def synced(self, identity: str, generation: int, answer: SyncAnswer) -> None:
        self._truth.note("synced", identity, generation, answer.assignment.decode())
        super().synced(identity, generation, answer)
        self.sync_answered.set()

    def kept(self, attempt: Attempt, generation: int) -> None:
        self._truth.note("commit kept", attempt.value, generation)
        super().kept(attempt, generation)

    def violate(self, rule: str, what: str) -> None:
        if not self._is_gone():
            super().violate(rule, what)
            self._truth.violate(rule, what)
