from __future__ import annotations

from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tidelog.spark.options import Division
from tidelog.spark.planner import TASK_RECORDS, OffsetRange, Task, plan


def one(partition: int, start: int, end: int) -> OffsetRange:
    return OffsetRange("t", partition, start, end, "id")


ranges = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 2_000_000)), max_size=12).map(
    lambda found: [one(number, start, start + size) for number, (start, size) in enumerate(found)]
)
numbers = st.none() | st.integers(1, 40)
divisions = st.builds(
    Division, partitions_min=numbers, records_max=st.none() | st.integers(100_000, 10**7), tasks_max=st.integers(1, 9)
)


def pieces(tasks: list[Task], partition: int) -> list[OffsetRange]:
    return [piece for task in tasks for piece in task if piece.partition == partition]


@given(ranges, divisions)
def test_all_is_read_once_and_in_order(wanted: list[OffsetRange], division: Division) -> None:
    tasks = plan(wanted, division)
    for whole in wanted:
        found = pieces(tasks, whole.partition)
        assert all(left.end == right.start for left, right in pairwise(found))
        assert not found or (found[0].start, found[-1].end) == (whole.start, whole.end)
        assert bool(found) == (whole.size > 0)
        assert all(piece.size > 0 for piece in found)


@given(ranges, divisions, st.randoms(use_true_random=False))
def test_the_plan_does_not_depend_on_the_order(wanted: list[OffsetRange], division: Division, order: Random) -> None:
    shuffled = list(wanted)
    order.shuffle(shuffled)
    assert plan(shuffled, division) == plan(wanted, division)


@given(ranges, st.integers(1, 9))
def test_without_wishes_ranges_stay_whole_and_tasks_few(wanted: list[OffsetRange], tasks_max: int) -> None:
    tasks = plan(wanted, Division(tasks_max=tasks_max))
    records = sum(whole.size for whole in wanted)
    assert sorted(piece for task in tasks for piece in task) == [whole for whole in wanted if whole.size]
    assert len(tasks) <= min(tasks_max, max(1, -(-records // TASK_RECORDS)))
    loads = [sum(piece.size for piece in task) for task in tasks]
    if len(loads) > 1:  # an optimal plan needs at least the mean, and LPT takes at most 4/3 of the optimum
        assert max(loads) <= max(*(whole.size for whole in wanted), 2 * records / len(loads))


def test_small_ranges_make_one_task() -> None:
    assert [len(task) for task in plan([one(n, 0, 100) for n in range(32)], Division())] == [32]


@given(ranges, st.integers(100_000, 10**6))
def test_no_task_reads_more_than_it_may(wanted: list[OffsetRange], records_max: int) -> None:
    assert all(piece.size <= records_max for (piece,) in plan(wanted, Division(records_max=records_max)))


def test_partitions_are_cut_in_proportion() -> None:
    tasks = plan([one(0, 0, 100), one(1, 0, 300), one(2, 5, 6)], Division(partitions_min=5))
    assert [(piece.partition, piece.start, piece.end) for (piece,) in tasks] == [
        (0, 0, 100),
        (1, 0, 100),
        (1, 100, 200),
        (1, 200, 300),
        (2, 5, 6),
    ]


def test_more_pieces_than_records_there_can_not_be() -> None:
    assert len(plan([one(0, 7, 10)], Division(partitions_min=50))) == 3
