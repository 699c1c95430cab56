"""Whatever is written, limited, crashed and restarted: every record is in exactly one committed batch, in order."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.spark.lake import Lake
from tests.unit.spark.query import Query

ACTIONS = ("write", "grow", "batch", "fail", "restart", "forget")
actions = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 2), st.integers(1, 50)), min_size=1, max_size=40)


class Run:
    """A query that is made to fail, and the ranges of its committed batches."""

    def __init__(self, **options: str) -> None:
        self.lake = Lake()
        self.lake.create("t", 10, 0)
        self.query = Query(self.lake, **options)
        self.begin: dict[int, int] | None = None
        self.read: dict[int, list[int]] = {}
        self.is_planned = False

    def do(self, action: str, partition: int, count: int) -> None:
        known = sum(one.topic == "t" for one in self.lake.extents)
        if action == "write":
            self.lake.write("t", min(partition, known - 1), count)
        elif action == "grow":
            self.lake.write("t", known, count)
        elif action == "batch":
            self.batch()
        elif action == "fail":
            self.is_planned = self.is_planned or self.query.plan()
            self.query.restart()
        elif action == "restart" or (action == "forget" and not self.query.log):
            self.query.restart()

    def batch(self) -> bool:
        """The next batch, or again the one that failed, to its end. False if there was nothing to do."""
        if not self.is_planned and not self.query.plan():
            return False
        self.is_planned = False
        for partition, start, end in self.query.run():
            self.read.setdefault(partition, []).extend(range(start, end))
        if self.begin is None:
            self.begin = {one.partition: offset for one, offset in self.query.start_of(1).positions.items()}
        return True

    def finish(self) -> None:
        """Reads all that is left."""
        while self.batch():
            pass


@given(actions, st.sampled_from([{}, {"maxOffsetsPerTrigger": "7"}, {"minOffsetsPerTrigger": "20"}]))
@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_each_record_is_in_one_batch(
    starting: str, steps: Sequence[tuple[str, int, int]], limits: dict[str, str]
) -> None:
    run = Run(startingOffsets=starting, maxTriggerDelay="0s", **limits)
    for step in steps:
        run.do(*step)
    run.finish()
    first = {0: 0, 1: 0} if starting == "earliest" else run.begin
    assert first is not None
    for (_, partition), extent in run.lake.extents.items():
        assert run.read.get(partition, []) == [*range(first.get(partition, 0), extent.end)]


@given(actions)
def test_a_query_that_is_to_end_ends_at_what_there_was(steps: Sequence[tuple[str, int, int]]) -> None:
    run = Run(startingOffsets="earliest", maxOffsetsPerTrigger="9")
    run.query.planner.freeze()
    ends = {one.partition: extent.end for one, extent in run.lake.extents.items()}
    writes = iter([step for step in steps if step[0] in ("write", "grow")])
    while run.batch():
        for step in [next(writes, None)]:
            if step is not None:
                run.do(*step)
    assert {partition: len(read) for partition, read in run.read.items() if read} == {
        partition: end for partition, end in ends.items() if end
    }
