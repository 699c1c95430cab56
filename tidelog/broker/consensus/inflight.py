"""Proposals in flight and the requests that wait for them, answered when the log shows their outcome.

A value that was proposed at a position is in the log if that position is applied with this value, and not void; it is
certainly not if another value is applied there, since it was proposed at no other position. A leader that has lost its
term knows neither, but its log may still show it. Until then its clients wait, up to their deadlines; then the outcome
is reported as unknown.

A repeat of a batch that is still in flight waits with the original.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Generic, Protocol, TypeVar

from tidelog.model.errors import TidelogError
from tidelog.replication.paxos.apply import Verdict
from tidelog.replication.paxos.events import Applied
from tidelog.replication.paxos.state import Value


class Waiter(Protocol):
    """A request that is answered when a proposal is decided."""

    @property
    def is_waiting(self) -> bool:
        """True while the request's client still waits for the answer."""

    def fail(self, error: TidelogError) -> None: ...


W = TypeVar("W", bound=Waiter)


class InFlightProposal(Generic[W]):
    """A proposed value without an outcome yet, and the requests that it answers."""

    __slots__ = ("accepted_by", "durability", "is_released", "size", "value", "waiters")

    def __init__(self, value: Value, durability: str = "fsynced", size: int = 0) -> None:
        self.value = value
        self.size = size
        """The bytes of the value's payload."""
        self.is_released = False
        """True once the value can be acknowledged and read although values before it are not chosen."""
        self.durability = durability
        """The promise of an acknowledgement of this value: "fsynced" or "replicated"."""
        self.waiters: list[W] = []
        self.accepted_by: tuple[int, ...] = ()
        """Engine ids of the quorum that accepted the value; empty while it is not known."""

    @property
    def end_offset(self) -> int:
        return self.value.base_offset + self.value.count

    def is_in_log(self, applied: Applied) -> bool:
        """Returns True if the value applied at this proposal's position is the proposed one, and not void."""
        # An equal value that is void was proposed again by a later leader behind its barrier: it takes no offsets.
        return self.value == applied.value and applied.verdict is Verdict.APPLIED

    def fail(self, error: TidelogError) -> None:
        for waiter in self.take_waiters():
            waiter.fail(error)

    def take_waiters(self) -> list[W]:
        """Removes and returns the requests, to be answered now."""
        waiters, self.waiters = self.waiters, []
        return waiters


class InFlightProposals(Generic[W]):
    """A leader's proposals by position, which rise; bounded by the engine's window."""

    def __init__(self) -> None:
        self._proposals: dict[int, InFlightProposal[W]] = {}
        self.size = 0
        """The bytes of all payloads in flight."""
        self.unchosen = 0
        """The number of values in flight that no quorum is known to have accepted."""

    def __len__(self) -> int:
        return len(self._proposals)

    def add(self, position: int, proposal: InFlightProposal[W]) -> None:
        """Keeps a proposal until its position is applied."""
        self._proposals[position] = proposal
        self.size += proposal.size
        self.unchosen += 1

    def chosen(self, position: int, accepted_by: tuple[int, ...]) -> None:
        """Notes the engine ids of the quorum that accepted the value at a position."""
        proposal = self._proposals.get(position)
        if proposal is not None:
            self.unchosen -= not proposal.accepted_by
            proposal.accepted_by = accepted_by

    def get(self, position: int) -> InFlightProposal[W] | None:
        """Returns the proposal at a position; None if this leader has none in flight there."""
        return self._proposals.get(position)

    def take(self, position: int) -> InFlightProposal[W] | None:
        """Removes and returns the proposal at an applied position; None if this leader proposed nothing there."""
        proposal = self._proposals.pop(position, None)
        if proposal is not None:
            self.size -= proposal.size
            self.unchosen -= not proposal.accepted_by
        return proposal

    def reaching(self, offset: int) -> InFlightProposal[W] | None:
        """Returns the first proposal that reaches `offset`, which is the one that a repeated batch with this end offset
        has to wait for; None if none does."""
        return next((proposal for proposal in self._proposals.values() if proposal.end_offset >= offset), None)

    def released(self) -> list[tuple[int, InFlightProposal[W]]]:
        """Returns positions and proposals of the values that are released and not applied, in order."""
        return [(position, proposal) for position, proposal in self._proposals.items() if proposal.is_released]

    @property
    def is_awaited(self) -> bool:
        """True while a request waits for one of the proposals."""
        return any(waiter.is_waiting for waiter in self._waiters())

    def fail(self, error: TidelogError) -> None:
        """Fails all waiting requests, since the outcome of the proposals will not be known here."""
        for waiter in self._waiters():
            waiter.fail(error)
        self._proposals.clear()
        self.size = self.unchosen = 0

    def _waiters(self) -> Iterator[W]:
        for proposal in self._proposals.values():
            yield from proposal.waiters


def fail(outcome: asyncio.Future[Any] | None, error: TidelogError) -> None:
    """Sets `error` as the exception of the future `outcome`, unless that is None or already done."""
    if outcome is not None and not outcome.done():
        outcome.set_exception(error)


def resolve(outcome: asyncio.Future[None] | None) -> None:
    """Completes the future `outcome` with the result None, unless it is None itself or already done."""
    if outcome is not None and not outcome.done():
        outcome.set_result(None)
