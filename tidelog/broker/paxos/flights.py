"""Values on their way, and who waits for them: told when the log says what became of them, and not before.

A value that was proposed at a position is in the log if that position is applied with this value, and not void; it
surely is not if the position is applied otherwise, since it was proposed nowhere else. A leader that has lost knows
neither, but its log may still tell. Until then its clients wait, up to their deadlines; then the outcome is unknown.

A repeat of a batch that is still on its way waits with the original.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.broker.partitions.proposals import Proposal
from tidelog.model.errors import TidelogError
from tidelog.replication.paxos.state import Value


class Flight:
    """One value, and the requests that it answers."""

    __slots__ = ("accepted_by", "durability", "proposals", "value")

    def __init__(self, value: Value, durability: str) -> None:
        self.value = value
        self.durability = durability
        """What may be said of the quorum that holds it: fsynced, or replicated."""
        self.proposals: list[Proposal] = []
        self.accepted_by: tuple[int, ...] = ()
        """Engine ids of that quorum; empty while it is not known."""

    @property
    def end_offset(self) -> int:
        return self.value.base_offset + self.value.count


class Flights:
    """Of one leader, in one leader epoch; bounded by its window."""

    def __init__(self) -> None:
        self._flights: dict[int, Flight] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def add(self, position: int, flight: Flight) -> None:
        """A value was proposed; positions rise."""
        self._flights[position] = flight

    def chosen(self, position: int, accepted_by: tuple[int, ...]) -> None:
        """A quorum holds it."""
        flight = self._flights.get(position)
        if flight is not None:
            flight.accepted_by = accepted_by

    def take(self, position: int) -> Flight | None:
        """The value that was proposed there: its position is applied."""
        return self._flights.pop(position, None)

    def wait_for(self, offset: int, proposal: Proposal) -> bool:
        """Has a request answered when the log is applied up to `offset`; False if no value on its way gets there."""
        for flight in self._flights.values():
            if flight.end_offset >= offset:
                flight.proposals.append(proposal)
                return True
        return False

    @property
    def is_awaited(self) -> bool:
        """Does anybody still wait?"""
        return any(not proposal.is_abandoned and proposal.done for proposal in self._proposals())

    def fail(self, error: TidelogError) -> None:
        """Nobody will learn of the rest."""
        for proposal in self._proposals():
            proposal.fail(error)
        self._flights.clear()

    def _proposals(self) -> Iterator[Proposal]:
        for flight in self._flights.values():
            yield from flight.proposals
