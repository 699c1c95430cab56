"""Ranges of feature levels, and what is said when they do not fit."""

from __future__ import annotations

import pytest

from tidelog.model.levels import LevelRange, unfit_for_level, without_common_level


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [((1, 3), (1, 3), 3), ((1, 2), (2, 3), 2), ((1, 3), (1, 1), 1), ((1, 1), (2, 3), None), ((2, 2), (3, 3), None)],
)
def test_two_brokers_talk_at_the_highest_level_that_both_speak(
    one: tuple[int, int], other: tuple[int, int], common: int | None
) -> None:
    assert LevelRange(*one).common(LevelRange(*other)) == LevelRange(*other).common(LevelRange(*one)) == common


@pytest.mark.parametrize("is_mine_older", [True, False])
def test_the_older_of_two_that_have_no_level_in_common_is_to_be_upgraded(is_mine_older: bool) -> None:
    older, newer = (1, LevelRange(1, 1)), (2, LevelRange(2, 3))
    said = without_common_level(*((older, newer) if is_mine_older else (newer, older)))
    assert said.startswith("node 1 speaks feature level 1, and node 2 feature levels 2 to 3")
    assert said.endswith("upgrade node 1 to a version of tidelog that speaks level 2")


def test_a_node_that_is_too_old_is_upgraded_and_one_that_is_too_new_comes_by_a_version_between() -> None:
    assert unfit_for_level(1, LevelRange(1, 2), 3).endswith("a version of tidelog that speaks level 3")
    assert "speaks both level 1 and level 2, as all others" in unfit_for_level(1, LevelRange(2, 3), 1)
