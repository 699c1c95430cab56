"""Proposals in flight, and who waits for them: answered when the log says what became of them, and not before.

A value that was proposed at a position is in the log if that position is applied with this value, and not void; it
surely is not if the position is applied otherwise, since it was proposed nowhere else. A leader that has lost knows
neither, but its log may still tell. Until then its clients wait, up to their deadlines; then the outcome is unknown.

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
    """A request that a proposal answers."""

    @property
    def is_waiting(self) -> bool:
        """True while somebody is there to hear the answer."""

    def fail(self, error: TidelogError) -> None: ...


W = TypeVar("W", bound=Waiter)


class InFlightProposal(Generic[W]):
    """A value without an outcome yet, and the requests that it answers."""

    __slots__ = ("accepted_by", "durability", "value", "waiters")

    def __init__(self, value: Value, durability: str = "fsynced") -> None:
        self.value = value
        self.durability = durability
        """The promise that the quorum that holds it keeps: fsynced, or replicated."""
        self.waiters: list[W] = []
        self.accepted_by: tuple[int, ...] = ()
        """Engine ids of that quorum; empty while it is not known."""

    @property
    def end_offset(self) -> int:
        return self.value.base_offset + self.value.count

    def is_in_log(self, applied: Applied) -> bool:
        """Judges what is applied at the proposal's position: the value itself, or another's."""
        # An equal value that is void was proposed again by a later leader behind its barrier: it takes no offsets.
        return self.value == applied.value and applied.verdict is Verdict.APPLIED

    def fail(self, error: TidelogError) -> None:
        for waiter in self.waiters:
            waiter.fail(error)


class InFlightProposals(Generic[W]):
    """Proposals of one leader by position, bounded by the engine's window. Positions rise."""

    def __init__(self) -> None:
        self._proposals: dict[int, InFlightProposal[W]] = {}

    def __len__(self) -> int:
        return len(self._proposals)

    def add(self, position: int, proposal: InFlightProposal[W]) -> None:
        """Keeps a proposal until its position is applied."""
        self._proposals[position] = proposal

    def chosen(self, position: int, accepted_by: tuple[int, ...]) -> None:
        """Notes the quorum that holds the value."""
        proposal = self._proposals.get(position)
        if proposal is not None:
            proposal.accepted_by = accepted_by

    def take(self, position: int) -> InFlightProposal[W] | None:
        """Removes and returns the proposal at a position that is applied; None if this leader proposed nothing
        there."""
        return self._proposals.pop(position, None)

    def wait_for(self, offset: int, waiter: W) -> bool:
        """Has a request answered when the log is applied up to `offset`. Returns False if no proposal reaches it."""
        for proposal in self._proposals.values():
            # In order of positions, so the first that reaches the offset is the one to wait for.
            if proposal.end_offset >= offset:
                proposal.waiters.append(waiter)
                return True
        return False

    @property
    def is_awaited(self) -> bool:
        """True while somebody waits for an answer."""
        return any(waiter.is_waiting for waiter in self._waiters())

    def fail(self, error: TidelogError) -> None:
        """Fails all that wait: nobody will learn what became of the proposals."""
        for waiter in self._waiters():
            waiter.fail(error)
        self._proposals.clear()

    def _waiters(self) -> Iterator[W]:
        for proposal in self._proposals.values():
            yield from proposal.waiters


def fail(outcome: asyncio.Future[Any] | None, error: TidelogError) -> None:
    """Ends a wait with an error, if somebody waits."""
    if outcome is not None and not outcome.done():
        outcome.set_exception(error)


def resolve(outcome: asyncio.Future[None] | None) -> None:
    """Ends a wait, if somebody waits."""
    if outcome is not None and not outcome.done():
        outcome.set_result(None)
