"""The end of a run excuses an only voter that rightly does not go on, and nothing that merely looks like it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tidelog.sim.cluster.healing import BEYOND_HELP
from tidelog.sim.cluster.run import run_scenario
from tidelog.sim.cluster.scenario import Order, Scenario, Strike, Swarm
from tidelog.sim.kit.patching import patched
from tidelog.storage.log_manager import LogManager
from tidelog.storage.slot_store import StoredSlot

NEVER_APPLIED, APPLIED = 1_000, 2


@contextmanager
def unreadable_from_the_second_life_on(position: int) -> Iterator[None]:
    lives = 0
    open_slots = LogManager.open_slots

    def damaged(manager: LogManager, *args: Any, **kwargs: Any) -> Any:
        nonlocal lives
        lives += 1
        store, stored = open_slots(manager, *args, **kwargs)
        if lives > 1:
            sound = [slot for slot in stored.slots if slot.position != position]
            stored.slots[:] = [*sound, StoredSlot(position, 1, None, is_faulty=True)]
        return store, stored

    with patched(LogManager, "open_slots", damaged):
        yield


def alone(kind: str) -> Scenario:
    """One broker that is writing when something happens to it; then it is started again."""
    swarm = Swarm(1, 0, chaos_s=1.0, delay_min_s=0.0, delay_mean_s=0.001, disk_delay_s=0.001, clock_drift=0.0)
    orders = [Order(0.1 + number / 20, "create", 1, number, 1.0) for number in range(8)]
    return Scenario(1, swarm, (*orders, Strike(0.2, kind, (1,), 0.4, 0.9)))


@pytest.mark.parametrize(
    ("kind", "position", "is_excused"),
    [("sync error", NEVER_APPLIED, True), ("sync error", APPLIED, False), ("kill", NEVER_APPLIED, False)],
)
def test_an_only_voter_may_wait_for_what_was_never_promised(kind: str, position: int, is_excused: bool) -> None:
    with unreadable_from_the_second_life_on(position):
        outcome = run_scenario(alone(kind))
    assert outcome.counters[BEYOND_HELP] == is_excused
    assert outcome.violations == () if is_excused else "liveness" in outcome.violations[0], outcome.violations


def test_what_fails_fsyncs_for_a_while_goes_on() -> None:
    outcome = run_scenario(alone("sync error"))
    assert (outcome.violations, outcome.counters[BEYOND_HELP]) == ((), 0)
