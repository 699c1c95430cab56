"""Planted bugs of classic groups that stories of whole clusters have to show: some of those that the simulator of
coordinators finds as well, and some that only replicas, disks and elections bring about."""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

from tests.sim.cluster import group_mutants
from tests.sim.groups import mutants as coordinator_mutants
from tests.sim.planting import Mutant, all_patched
from tidelog.broker.groups.classics import Classics
from tidelog.broker.groups.coordinator_state import CoordinatorState
from tidelog.groups.classic import rebalance, syncs
from tidelog.groups.classic.state import Phase
from tidelog.groups.classic.turn import Turn
from tidelog.model.classic_groups import SyncAnswer, SyncGroup

_SYNCING: ContextVar[bool] = ContextVar("syncing", default=False)


def assignments_of_the_generation_before() -> AbstractContextManager[None]:
    """A member that syncs before the leader has assigned is given what it had in the generation before."""
    shipped_begin, shipped_sync = rebalance._begin_generation, syncs.sync

    def begin(turn: Turn) -> None:
        before = {member.member_id: member.assignment for member in turn.group.members.values()}
        shipped_begin(turn)
        for member in [*turn.group.members.values()]:
            turn.change(member, assignment=before[member.member_id])

    def sync(turn: Turn, request: SyncGroup, wait: int) -> None:
        group = turn.group
        known = group.members.get(request.member_id)
        if (
            known is None
            or not known.assignment
            or group.phase is not Phase.COMPLETING
            or known.member_id == group.leader
        ):
            shipped_sync(turn, request, wait)
            return
        turn.tell(wait, SyncAnswer("consumer", "range", known.assignment))
        turn.change(known, has_synced=True)

    return all_patched([(rebalance, "_begin_generation", begin), (syncs, "sync", sync)])


def syncs_before_the_record() -> AbstractContextManager[None]:
    """A SyncGroup is answered as soon as the leader has assigned, whether that will be in the log or not."""
    sync, until_true = Classics.sync, CoordinatorState.until_true

    async def sync_at_once(self: Classics, request: SyncGroup, deadline_s: float) -> SyncAnswer:
        _SYNCING.set(True)  # in the task of this request alone
        return await sync(self, request, deadline_s)

    async def until_true_but_for_syncs(self: CoordinatorState, *args: Any) -> None:
        if not _SYNCING.get():
            await until_true(self, *args)

    return all_patched([(Classics, "sync", sync_at_once), (CoordinatorState, "until_true", until_true_but_for_syncs)])


MUTANTS: tuple[Mutant, ...] = (
    coordinator_mutants.commits_of_an_old_generation,
    coordinator_mutants.a_generation_is_written_when_it_is_assigned,
    coordinator_mutants.members_that_wait_are_forgotten_with_their_coordinator,
    assignments_of_the_generation_before,
    syncs_before_the_record,
    group_mutants.load_without_a_claim,
)
