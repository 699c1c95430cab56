"""Tests of the releases of values, against a model that remembers every value."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from tidelog.replication.paxos.predecessors import PREDECESSORS_MAX, are_named, named_at
from tidelog.replication.paxos.releases import EVERY_KEY, Releases


class Proposed(NamedTuple):
    keys: frozenset[int]
    is_lazy: bool


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Proposed], list[int]]:
    """Returns proposed values, from position 0 on, and the order in which these are chosen."""
    keys = st.frozensets(st.sampled_from([EVERY_KEY, 1, 2, 3, 4, 5, 6, 7, 8, 9]), max_size=4)
    values = draw(st.lists(st.builds(Proposed, keys, st.booleans()), max_size=14))
    return values, draw(st.permutations(range(len(values))))


def conflict(one: frozenset[int], other: frozenset[int]) -> bool:
    return bool(one & other) or EVERY_KEY in one or EVERY_KEY in other


@given(histories())
def test_a_value_is_released_when_it_and_all_that_it_conflicts_with_are(
    history: tuple[list[Proposed], list[int]],
) -> None:
    values, order = history
    releases = Releases()
    for position, value in enumerate(values):
        releases.add(position, value.keys, is_lazy=value.is_lazy)
    chosen: set[int] = set()
    released: list[int] = []
    for position in order:
        chosen.add(position)
        released += releases.chosen(position)
        assert releases.chosen(position) == []
        # Each stands behind what it waited for, and nothing waits longer than its conflicts ask, but for values that
        # could not name them all.
        for index, each in enumerate(released):
            earlier = {other for other in range(each) if conflict(values[each].keys, values[other].keys)}
            assert each in chosen and earlier <= set(released[:index])
    assert sorted(released) == list(range(len(values))) and len(releases) == 0


@given(histories())
def test_a_value_names_the_durable_ones_that_it_waits_for_or_needs_all(
    history: tuple[list[Proposed], list[int]],
) -> None:
    values, _ = history
    releases = Releases()
    for position, value in enumerate(values):
        begin = releases.add(position, value.keys, is_lazy=value.is_lazy)
        durable = {other for other in range(position) if not values[other].is_lazy}
        needed = {other for other in durable if conflict(value.keys, values[other].keys)}
        if value.is_lazy:
            assert begin == 0
        elif are_named(begin):
            named = set(named_at(position, begin))
            # The last value with a key stands for those before it, so not all of them are named.
            assert named <= needed and len(named) <= PREDECESSORS_MAX
        elif begin:
            lazy = [other for other in range(position) if values[other].is_lazy]
            assert begin == max(lazy, default=-1) + 1 < position


def test_a_value_does_not_name_what_another_names_for_it() -> None:
    releases = Releases()
    for position in range(1, 8):
        releases.add(position, frozenset({position}))
    assert len(named_at(8, releases.add(8, frozenset({1, 2, 3, 4})))) == 4
    begin = releases.add(9, frozenset(range(1, 6)))
    assert sorted(named_at(9, begin)) == [5, 8]
    for position in range(1, 8):
        assert releases.chosen(position) == [position]
    assert releases.chosen(9) == [] and releases.chosen(8) == [8, 9]


def test_values_of_other_keys_are_released_past_a_hole() -> None:
    releases = Releases()
    assert releases.add(1, frozenset({7})) == releases.add(2, frozenset({8})) == 0
    begin = releases.add(3, frozenset({7, 9}))
    assert named_at(3, begin) == [1]
    assert releases.chosen(2) == [2]
    assert releases.chosen(3) == []
    assert releases.chosen(1) == [1, 3]


def test_a_value_that_conflicts_with_all_holds_up_all_behind_it() -> None:
    releases = Releases()
    for position in range(1, 4):
        releases.add(position, frozenset({position}))
    assert sorted(named_at(4, releases.add(4, frozenset({EVERY_KEY})))) == [1, 2, 3]
    assert named_at(5, releases.add(5, frozenset({50}))) == [4]
    assert releases.chosen(5) == releases.chosen(4) == []
    assert [*releases.chosen(1), *releases.chosen(2), *releases.chosen(3)] == [1, 2, 3, 4, 5]


def test_a_value_that_cannot_name_all_needs_the_log_unbroken_and_waits_for_all() -> None:
    releases = Releases()
    for position in range(1, 9):
        releases.add(position, frozenset({position}))
    begin = releases.add(9, frozenset(range(1, 7)))
    assert begin == 1
    for position in range(1, 8):
        assert releases.chosen(position) == [position]
    assert releases.chosen(9) == [], "it waits for 8, with which it has no key in common"
    assert releases.chosen(8) == [8, 9]


def test_a_value_without_keys_waits_for_none_but_those_that_conflict_with_all() -> None:
    releases = Releases()
    releases.add(1, frozenset({1}))
    assert releases.add(2, frozenset()) == 0 and releases.chosen(2) == [2]
    releases.add(3, frozenset({EVERY_KEY}))
    releases.add(4, frozenset())
    assert releases.chosen(4) == []
