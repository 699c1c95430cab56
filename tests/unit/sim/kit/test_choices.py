"""Exhaustive means: every answer once, none twice."""

from __future__ import annotations

import pytest

from tests.every_crash import enumerate_crashes
from tidelog.sim.kit.choices import RandomChoices
from tidelog.sim.kit.seeds import stream


def test_every_path_of_answers_once() -> None:
    paths = []
    for choices in enumerate_crashes():
        first = choices.choose(3)
        rest = [choices.survives(1), choices.sectors(1, 2)] if first == 1 else []
        paths.append((first, *rest))
    assert len(paths) == len(set(paths)) == 2 + 2 * 4


def test_no_question_means_one_crash() -> None:
    assert sum(1 for _ in enumerate_crashes()) == 1


def test_wide_writes_are_torn_at_every_prefix_and_suffix() -> None:
    masks = [choices.sectors(1, 5) for choices in enumerate_crashes()]
    assert set(masks) == {0, 0b1, 0b11, 0b111, 0b1111, 0b11111, 0b11110, 0b11100, 0b11000, 0b10000}


def test_a_state_that_differs_between_rounds_is_noticed() -> None:
    rounds = enumerate_crashes()
    next(rounds).choose(2)
    with pytest.raises(AssertionError, match="not deterministic"):
        next(rounds).choose(3)


def test_random_crashes_have_moods() -> None:
    seen = set()
    for seed in range(200):
        choices = RandomChoices(stream(seed), 1, 6)
        seen.add(tuple(choices.survives(n) for n in range(1, 7)))
    for kept in range(7):
        assert (True,) * kept + (False,) * (6 - kept) in seen
    assert len(seen) > 20
