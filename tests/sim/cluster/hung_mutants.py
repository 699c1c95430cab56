"""Planted bugs of steadiness: each leaves out what notices that a broker or its disk hangs, and some story has to show
that nothing is committed for longer than users are told."""

from __future__ import annotations

from contextlib import AbstractContextManager

from tests.sim.planting import Mutant
from tidelog.broker.replicas.reports import Reports
from tidelog.replication.isr.leader import IsrLeader
from tidelog.sim.kit.patching import patched


def wait_for_who_has_stalled() -> AbstractContextManager[None]:
    """A follower stays in sync, and is waited for, until it lags or is fenced."""
    return patched(IsrLeader, "_without_stalled", lambda leader, members: members)


def tell_nobody_of_silence() -> AbstractContextManager[None]:
    """A broker that hangs is fenced when its session ends."""
    return patched(Reports, "report_silence", lambda reports, own_epoch, node_id: None)


def lead_on_with_a_hung_disk() -> AbstractContextManager[None]:
    """A leader whose own disk takes nothing stays the leader."""
    return patched(IsrLeader, "has_stalled", property(lambda leader: False))


MUTANTS: tuple[Mutant, ...] = (wait_for_who_has_stalled, tell_nobody_of_silence, lead_on_with_a_hung_disk)
