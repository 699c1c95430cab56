"""Elections with one rule removed."""

from __future__ import annotations

from math import inf
from typing import Any

from tidelog.replication.election import Election
from tidelog.replication.election_events import ElectionEffect, LeaseReleased
from tidelog.replication.election_lease import Term


class NoPreVote(Election):
    """Campaigns whenever it hears nobody."""

    def _ask(self, now_s: float) -> list[ElectionEffect]:
        return self._campaign(now_s)


class NoCheckQuorum(Election):
    """Leads until somebody contradicts."""

    def _on_beat(self, now_s: float) -> list[ElectionEffect]:
        assert self._term is not None
        self._term.began_s = now_s
        return super()._on_beat(now_s)


class NoRestartWait(Election):
    """Forgets with a restart what it has granted."""

    def __init__(self, *arguments: Any, has_voted_before: bool, **named: Any) -> None:
        super().__init__(*arguments, has_voted_before=False, **named)


class LeaseFromAnswer(Election):
    """Counts the lease from when the answer came, not from when the question went out."""

    def step(self, event: Any, now_s: float) -> list[ElectionEffect]:
        term = self._term
        before = {} if term is None else dict(term._backed_s)
        effects = super().step(event, now_s)
        if term is not None and term is self._term:
            self._date(term, before, now_s)
        return effects

    def _date(self, term: Term, before: dict[int, float], now_s: float) -> None:
        for voter, sent_s in term._backed_s.items():
            if sent_s > before.get(voter, float("-inf")):
                term._backed_s[voter] = now_s


class HeartbeatAfterPromise(Election):
    """Answers a leader's heartbeats though it has promised a newer one."""

    def _on_promised(self, number: int, now_s: float) -> list[ElectionEffect]:
        return []


class PromiseUnderLease(Election):
    """Promises whoever asks."""

    def may_promise(self, candidate: int, now_s: float) -> bool:
        return True


class AloneByOneWord(Election):
    """Believes a single voter about the leases of earlier leaders."""

    def alone_s(self, now_s: float) -> float:
        free_s = self._term._free_since_s.values() if self._term is not None else ()
        return max(0.0, now_s - min(free_s, default=inf))


class AloneAsReleased(Election):
    """Takes a lease that its leader has released for one that never was."""

    def _on_released(self, released: LeaseReleased, now_s: float) -> list[ElectionEffect]:
        earlier_s = self._grants._earlier_end_s
        effects = super()._on_released(released, now_s)
        self._grants._earlier_end_s = earlier_s
        return effects


MUTANTS = (
    NoPreVote,
    NoCheckQuorum,
    NoRestartWait,
    LeaseFromAnswer,
    HeartbeatAfterPromise,
    PromiseUnderLease,
    AloneByOneWord,
    AloneAsReleased,
)
