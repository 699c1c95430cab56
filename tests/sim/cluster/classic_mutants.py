"""Planted bugs of classic groups that stories of whole clusters have to show: some of those that the simulator of
coordinators finds as well, and some that only replicas, disks and elections bring about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

from tests.sim.cluster.group_mutants import load_without_a_claim
from tests.sim.groups.mutants import (
    a_generation_is_written_when_it_is_assigned,
    assignments_are_kept,
    commits_of_an_old_generation,
    members_that_wait_are_forgotten_with_their_coordinator,
)
from tests.sim.planting import Mutant, all_patched
from tidelog.broker.groups.classics import Classics
from tidelog.broker.groups.coordinator_state import CoordinatorState
from tidelog.groups.classic import rebalance
from tidelog.groups.classic.turn import Turn
from tidelog.model.classic_groups import SyncAnswer, SyncGroup
from tidelog.sim.kit.patching import patched

_SYNCING: ContextVar[bool] = ContextVar("syncing", default=False)


@contextmanager
def assignments_of_the_generation_before() -> Iterator[None]:
    """A member that syncs is given what it had in the generation before, until the leader has assigned."""
    shipped = rebalance._begin_generation

    def begin(turn: Turn) -> None:
        before = {member.member_id: member.assignment for member in turn.group.members.values()}
        shipped(turn)
        for member in [*turn.group.members.values()]:
            turn.change(member, assignment=before[member.member_id])

    with patched(rebalance, "_begin_generation", begin), assignments_are_kept():
        yield


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
    commits_of_an_old_generation,
    assignments_of_the_generation_before,
    a_generation_is_written_when_it_is_assigned,
    syncs_before_the_record,
    members_that_wait_are_forgotten_with_their_coordinator,
    load_without_a_claim,
)
