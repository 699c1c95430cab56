"""The rules of a log that is ordered by key, taken away one at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import structs

from tests.sim.planting import Patch
from tidelog.replication.paxos import apply, replica
from tidelog.replication.paxos.coordinator import LogCoordinator
from tidelog.replication.paxos.events import Action, Chosen, Reason, Released
from tidelog.replication.paxos.messages import WriteResponse
from tidelog.replication.paxos.proposals import Proposals
from tidelog.replication.paxos.proposer import Proposer
from tidelog.replication.paxos.releases import Releases
from tidelog.replication.paxos.state import NOP, Kind, Prefix, Slot, Value


def released_before_what_it_conflicts_with() -> list[Patch]:
    """A batch waits for nothing below it, and needs nothing below it."""
    add = Releases.add

    def free(self: Releases, position: int, keys: frozenset[int], *, is_lazy: bool = False) -> int:
        return add(self, position, frozenset(), is_lazy=is_lazy)

    return [(Releases, "add", free)]


def batches_name_nothing() -> list[Patch]:
    """A batch waits for those that it conflicts with, but the log does not tell which these are."""
    add = Releases.add

    def nameless(self: Releases, position: int, keys: frozenset[int], *, is_lazy: bool = False) -> int:
        add(self, position, keys, is_lazy=is_lazy)
        return 0

    return [(Releases, "add", nameless)]


def lapsed_positions_are_not_looked_at() -> list[Patch]:
    """No batch is void because of the positions that it names."""
    return [(apply, "named_at", lambda position, begin: [])]


def chosen_counts_as_released() -> list[Patch]:
    """A batch is forgotten as soon as it is chosen, though it still waits for another: the look-behind of the next one
    lacks a hole."""
    chosen = Releases.chosen

    def forgetful(self: Releases, position: int) -> list[int]:
        released = chosen(self, position)
        waiting = self._waiting.get(position)
        if waiting is not None:
            for key in waiting.keys:
                if self._newest.get(key) == position:
                    del self._newest[key]
            waiting.keys = frozenset()
        return released

    return [(Releases, "chosen", forgetful)]


def released_when_one_has_accepted() -> list[Patch]:
    """A batch is released when the first node has accepted it."""
    accepted = Proposals.accepted

    def hasty(self: Proposals, sender: int, response: WriteResponse) -> Chosen | None:
        chosen = accepted(self, sender, response)
        proposal = self._open.get(response.position)
        return chosen if chosen or proposal is None else Chosen(response.position, proposal.value, (sender,))

    def on_chosen(self: LogCoordinator, chosen: Chosen) -> list[Action]:
        if chosen.position in self._proposals:
            return self._release(chosen.position) if chosen.position in self._own else []
        first, *others = Proposer._chosen(self, chosen)
        return [first, *self._release(chosen.position), *others]

    return [(Proposals, "accepted", hasty), (LogCoordinator, "_chosen", on_chosen)]


def released_whoever_had_it_chosen() -> list[Patch]:
    """A batch that nodes know to be chosen is released by the coordinator that proposed it first, though a later one
    may have adopted it."""
    accepted = Proposals.accepted

    def careless(self: Proposals, sender: int, response: WriteResponse) -> Chosen | None:
        chosen = accepted(self, sender, response)
        return None if chosen is None else structs.replace(chosen, is_adopted=False)

    return [(Proposals, "accepted", careless)]


def adopted_batches_are_released() -> list[Patch]:
    """A new leader releases what it found of its predecessors as soon as it is chosen, and not in order (early delivery
    of adopted values)."""
    on_chosen = LogCoordinator._chosen

    def early(self: LogCoordinator, chosen: Chosen) -> list[Action]:
        is_adopted = chosen.value.kind is Kind.APPEND and chosen.value.birth != self.number
        first, *others = on_chosen(self, chosen)
        return [first, *([Released(chosen.position)] if is_adopted else []), *others]

    return [(LogCoordinator, "_chosen", early)]


def floors_forget_what_has_lapsed() -> list[Patch]:
    """A log that is truncated begins without the positions that have lapsed before."""
    fold_to = apply.fold_to

    def forgetful(prefix: Prefix, slots: Mapping[int, Slot], position: int) -> Prefix:
        return structs.replace(fold_to(prefix, slots, position), lapsed=())

    return [(replica, "fold_to", forgetful)]


def holes_are_left_open() -> list[Patch]:
    """A new leader proposes what it found again, and nothing where it found nothing."""
    propose = Proposals.propose

    def sparing(self: Proposals, position: int, value: Value, **how: bool) -> list[Action]:
        return [] if value == NOP else propose(self, position, value, **how)

    return [(Proposals, "propose", sparing)]


def holes_grow_without_end() -> list[Patch]:
    """A coordinator goes on proposing, however far above the first position that is not chosen."""
    refusal = LogCoordinator._refusal

    def unbounded(self: LogCoordinator) -> Reason | None:
        reason = refusal(self)
        return None if reason is Reason.WINDOW_FULL else reason

    return [(LogCoordinator, "_refusal", unbounded)]


# Without `released_whoever_had_it_chosen`, which one of 100,000 runs shows: test_ghosts.py tells that history.
ORDER_MUTANTS: tuple[Callable[[], list[Patch]], ...] = (
    released_before_what_it_conflicts_with,
    batches_name_nothing,
    lapsed_positions_are_not_looked_at,
    chosen_counts_as_released,
    released_when_one_has_accepted,
    adopted_batches_are_released,
    floors_forget_what_has_lapsed,
    holes_are_left_open,
    holes_grow_without_end,
)
