"""Where a reset puts a group, partition by partition."""

from __future__ import annotations

import pytest

from tidelog.groups.resetting import PartitionOffsets, Reset, ResetTo, plan
from tidelog.model.errors import UnprocessableBody

AT_60 = PartitionOffsets("t", 0, current=60, log_start_offset=50, high_watermark=90, at_timestamp=72)
NOWHERE = PartitionOffsets("t", 1, current=None, log_start_offset=0, high_watermark=10, at_timestamp=None)


def new_offsets(reset: Reset, *standings: PartitionOffsets) -> list[int]:
    return [committed.new for committed in plan(reset, standings)]


@pytest.mark.parametrize(
    ("reset", "expected"),
    [
        (Reset(ResetTo.EARLIEST), [50, 0]),
        (Reset(ResetTo.LATEST), [90, 10]),
        (Reset(ResetTo.OFFSET, 7), [50, 7]),
        (Reset(ResetTo.OFFSET, 80), [80, 10]),
        (Reset(ResetTo.OFFSET, 10**12), [90, 10]),
        (Reset(ResetTo.TIMESTAMP, 1000), [72, 10]),
    ],
)
def test_a_committed_offset_is_within_its_partition(reset: Reset, expected: list[int]) -> None:
    assert new_offsets(reset, AT_60, NOWHERE) == expected


@pytest.mark.parametrize(("by", "expected"), [(5, 65), (-5, 55), (-100, 50), (100, 90), (0, 60)])
def test_a_shift_goes_on_or_back_from_where_the_group_is(by: int, expected: int) -> None:
    assert new_offsets(Reset(ResetTo.SHIFT, by), AT_60) == [expected]


def test_what_has_no_committed_offset_cannot_be_shifted() -> None:
    with pytest.raises(UnprocessableBody, match="no offset of t-1"):
        plan(Reset(ResetTo.SHIFT, 1), [AT_60, NOWHERE])


def test_the_committed_offset_before_is_told_with_the_new_one() -> None:
    assert plan(Reset(ResetTo.LATEST), [AT_60, NOWHERE]) == [("t", 0, 60, 90), ("t", 1, None, 10)]


def test_a_time_is_looked_for_only_where_it_is_needed() -> None:
    assert [Reset(to, 5).timestamp_ms for to in ResetTo] == [None, None, None, 5, None]
