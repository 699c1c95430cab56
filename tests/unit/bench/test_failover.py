"""The workload `failover` draws the leaders that it takes away."""

from __future__ import annotations

from itertools import islice

from tidelog.bench.failover import _drawn


def test_each_partition_is_drawn_as_often_as_the_others_and_in_no_fixed_turn() -> None:
    drawn = list(islice(_drawn(3), 30))
    assert drawn == list(islice(_drawn(3), 30))
    rounds = [tuple(drawn[at : at + 3]) for at in range(0, 30, 3)]
    assert all(sorted(one) == [0, 1, 2] for one in rounds)
    assert len(set(rounds)) > 1
