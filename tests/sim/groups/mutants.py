"""Planted bugs of classic groups: each breaks one rule of the shipped code, and some seed has to notice."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from msgspec import structs

from tests.sim.planting import Mutant, all_patched
from tidelog.broker.groups.classics import Classics
from tidelog.broker.groups.coordinator_state import CoordinatorState
from tidelog.groups.classic import commits, joins, members, rebalance, syncs
from tidelog.groups.classic.state import ClassicGroup, Member, Phase
from tidelog.groups.classic.turn import Turn
from tidelog.groups.records import ClassicRecord
from tidelog.model.classic_groups import JoinAnswer, SyncAnswer, SyncGroup
from tidelog.model.errors import TidelogError
from tidelog.sim.kit.patching import patched


def commits_of_an_old_generation() -> AbstractContextManager[None]:
    """A member's commit counts, in whatever generation it was made."""
    return patched(commits, "check_generation", lambda group, member_id, generation: None)


def two_leaders() -> AbstractContextManager[None]:
    """Everybody is told that it leads."""
    shipped = rebalance.join_answer

    def join_answer(group: ClassicGroup, member: Member) -> JoinAnswer:
        return structs.replace(shipped(group, member), leader=member.member_id)

    return all_patched([(rebalance, "join_answer", join_answer), (joins, "join_answer", join_answer)])


def a_generation_is_written_when_it_is_assigned() -> AbstractContextManager[None]:
    """The number of a generation is told before, as in Kafka, and used again by the next coordinator."""
    shipped = rebalance._begin_generation

    def begin(turn: Turn) -> None:
        shipped(turn)
        turn.records = [one for one in turn.records if not (isinstance(one, ClassicRecord) and one.members)]

    return patched(rebalance, "_begin_generation", begin)


def assignments_of_another_generation() -> AbstractContextManager[None]:
    """A leader's word counts, in whatever generation it is said."""

    def in_force(group: ClassicGroup, request: SyncGroup, generation: int) -> Member:
        return members.member_of(group, request)

    return patched(syncs, "_in_force", in_force)


def assignments_are_kept() -> AbstractContextManager[None]:
    """A member that syncs has what it had before, until the leader has spoken."""
    shipped = syncs.sync

    def sync(turn: Turn, request: SyncGroup, wait: int) -> None:
        group = turn.group
        known = group.members.get(request.member_id)
        if known is not None and group.phase is Phase.COMPLETING and request.member_id != group.leader:
            turn.tell(wait, SyncAnswer("consumer", "range", known.assignment))
            turn.change(known, has_synced=True)
            return
        shipped(turn, request, wait)

    return patched(syncs, "sync", sync)


def a_member_that_waits_is_forgotten_with_its_generation() -> AbstractContextManager[None]:
    """When all have to join again, nobody says so to who waits for the leader."""

    def tell(self: Turn, wait: int | None, what: Any) -> None:
        if wait is not None and not isinstance(what, TidelogError):
            shipped(self, wait, what)

    shipped = Turn.tell
    return patched(Turn, "tell", tell)


def members_that_wait_are_forgotten_with_their_coordinator() -> AbstractContextManager[None]:
    """A coordinator that ends says nothing to anybody."""
    return patched(Classics, "end", lambda self: None)


def answers_before_the_commit() -> AbstractContextManager[None]:
    """Decisions are told at once, whether it will be in the log or not."""

    async def at_once(self: CoordinatorState, *_: object) -> None:
        return None

    return patched(CoordinatorState, "until_true", at_once)


MUTANTS: tuple[Mutant, ...] = (
    commits_of_an_old_generation,
    two_leaders,
    a_generation_is_written_when_it_is_assigned,
    assignments_of_another_generation,
    assignments_are_kept,
    a_member_that_waits_is_forgotten_with_its_generation,
    members_that_wait_are_forgotten_with_their_coordinator,
    answers_before_the_commit,
)
