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

    __slots__ = ("accepted_by", "durability", "value", "waiters")

    def __init__(self, value: Value, durability: str = "fsynced") -> None:
        self.value = value
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
        for waiter in self.waiters:
            waiter.fail(error)


class InFlightProposals(Generic[W]):
    """A leader's proposals by position, which rise; bounded by the engine's window."""

    def __init__(self) -> None:
        self._proposals: dict[int, InFlightProposal[W]] = {}

    def __len__(self) -> int:
        return len(self._proposals)

    def add(self, position: int, proposal: InFlightProposal[W]) -> None:
        """Keeps a proposal until its position is applied."""
        self._proposals[position] = proposal

    def chosen(self, position: int, accepted_by: tuple[int, ...]) -> None:
        """Notes the engine ids of the quorum that accepted the value at a position."""
        proposal = self._proposals.get(position)
        if proposal is not None:
            proposal.accepted_by = accepted_by

    def take(self, position: int) -> InFlightProposal[W] | None:
        """Removes and returns the proposal at an applied position; None if this leader proposed nothing there."""
        return self._proposals.pop(position, None)

    def wait_for(self, offset: int, waiter: W) -> bool:
        """Adds a request to the first proposal that reaches `offset`. Returns False if none does."""
        for proposal in self._proposals.values():
            # In order of positions, so the first that reaches the offset is the one to wait for.
            if proposal.end_offset >= offset:
                proposal.waiters.append(waiter)
                return True
        return False

    @property
    def is_awaited(self) -> bool:
        """True while a request waits for one of the proposals."""
        return any(waiter.is_waiting for waiter in self._waiters())

    def fail(self, error: TidelogError) -> None:
        """Fails all waiting requests, since the outcome of the proposals will not be known here."""
        for waiter in self._waiters():
            waiter.fail(error)
        self._proposals.clear()

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
