"""Plans of faults: the same for the same seed, every kind in turn, a minority at a time."""

from __future__ import annotations

from itertools import islice

import pytest

from tidelog.testing.faults import NETWORK_FAULTS, PROCESS_FAULTS, SECONDS, plan

KINDS = PROCESS_FAULTS + NETWORK_FAULTS


def test_a_seed_is_one_plan() -> None:
    def first(seed: int) -> list[str]:
        return [str(fault) for fault in islice(plan(seed, [1, 2, 3], KINDS), 20)]

    assert first(1) == first(1) != first(2)


def test_every_kind_comes_before_any_comes_again() -> None:
    kinds = [fault.kind for fault in islice(plan(3, [1, 2, 3], KINDS), 21)]
    for begin in (0, 7, 14):
        assert sorted(kinds[begin : begin + 7]) == sorted(KINDS)


@pytest.mark.parametrize(("brokers", "broken_max"), [(1, 1), (3, 1), (4, 1), (5, 2)])
def test_the_others_are_a_majority(brokers: int, broken_max: int) -> None:
    faults = [*islice(plan(4, range(1, brokers + 1), KINDS), 200)]
    assert max(len(fault.nodes) for fault in faults) == broken_max
    assert {node for fault in faults for node in fault.nodes} == {*range(1, brokers + 1)}
    assert all(SECONDS[0] <= fault.seconds <= SECONDS[1] for fault in faults)
