from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog.model.ids import TopicPartition
from tidelog.spark.limits import backlog, is_worth_it, limit_bytes, limit_records
from tidelog.spark.options import Limits

P = [TopicPartition("t", number) for number in range(4)]
ends = st.lists(st.integers(0, 10**9), min_size=1, max_size=4)


def positions(numbers: list[int]) -> dict[TopicPartition, int]:
    return dict(zip(P, numbers, strict=False))


@given(ends, st.integers(1, 10**9))
def test_a_limit_is_kept_but_for_one_record_of_each(waiting: list[int], records_max: int) -> None:
    begin, end = positions([5] * len(waiting)), positions([5 + count for count in waiting])
    limited = limit_records(begin, end, records_max)
    taken = backlog(begin, limited)
    assert all(begin[one] <= limited[one] <= end[one] for one in end)
    assert set(taken) == set(backlog(begin, end))  # nobody is starved
    if sum(waiting) > records_max:
        assert sum(taken.values()) <= records_max + len(taken)
        assert sum(taken.values()) >= min(records_max, sum(waiting)) - len(taken)
    else:
        assert limited == end


def test_the_share_is_that_of_the_backlog() -> None:
    limited = limit_records(positions([0, 100, 0]), positions([100, 1000, 0]), 100)
    assert limited == positions([10, 190, 0])
    assert limit_records(positions([0, 0]), positions([1, 10**9]), 10)[P[0]] == 1


def test_bytes_count_what_records_weigh() -> None:
    begin, end = positions([0, 0]), positions([1000, 1000])
    assert limit_bytes(begin, end, {P[0]: 100.0, P[1]: 300.0}, 40_000) == positions([100, 100])
    assert limit_bytes(begin, end, {P[0]: 100.0, P[1]: 300.0}, 400_000) == end


def test_a_small_batch_waits_for_more_but_not_for_ever() -> None:
    limits = Limits(records_min=10, delay_s_max=60.0)
    begin = positions([0, 0])
    assert not is_worth_it(begin, positions([4, 5]), limits, 59.9)
    assert is_worth_it(begin, positions([5, 5]), limits, 0.0)
    assert is_worth_it(begin, positions([1, 0]), limits, 60.0)
    assert is_worth_it(begin, begin, Limits(), 0.0)
