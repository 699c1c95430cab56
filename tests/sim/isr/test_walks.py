"""Random walks of the primary-backup cores: nothing committed is lost, and each rule is needed for that."""

from __future__ import annotations

import pytest

from tests.sim.isr.mutants import HINTS, MUTANTS
from tests.sim.isr.walks import run_seed

WALKS = 1_500


def test_nothing_committed_is_lost() -> None:
    seen: dict[str, int] = {}
    assert {seed: found for seed in range(WALKS) if (found := run_seed(seed, seen=seen))} == {}
    for what in (
        "leader", "committed", "diverging", "truncated", "refused", "out of range", "started over", "unclean election",
        "APPLIED", "AMBIGUOUS",
    ):  # fmt: skip
        assert seen[what] > 50, f"{what} hardly ever happened: {seen}"
    assert seen["PROVEN_NOT_APPLIED"] > 0, "a member that is fenced, or lives again, before its leader hears of it"


@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_rule_is_needed(mutant: str) -> None:
    first = HINTS.get(mutant, 0)
    caught = next((seed for seed in range(first, first + WALKS) if run_seed(seed, MUTANTS[mutant])), None)
    assert caught is not None, "nobody noticed"
    assert run_seed(caught) is None


def test_a_seed_is_one_walk() -> None:
    first: dict[str, int] = {}
    again: dict[str, int] = {}
    assert run_seed(17, seen=first) == run_seed(17, seen=again)
    assert first == again
