"""Work in slices."""

from __future__ import annotations

import pytest

from tidelog.model.steps import SLICE_BYTES, SLICE_RECORDS, Meter, drive, mapped_slices


@pytest.mark.parametrize(("count", "pauses"), [(0, 0), (SLICE_RECORDS, 0), (SLICE_RECORDS + 1, 1), (3_000, 2)])
def test_what_is_made_of_many_is_made_in_slices(count: int, pauses: int) -> None:
    assert drive(mapped_slices(str, range(count))) == [str(number) for number in range(count)]
    assert len(list(mapped_slices(str, range(count)))) == pauses


def test_a_slice_is_over_when_it_has_enough_records_or_bytes() -> None:
    meter = Meter()
    assert not meter.is_over(SLICE_RECORDS - 1, SLICE_BYTES - 1)
    assert meter.is_over(1, 0)
    assert not meter.is_over(0, SLICE_BYTES - 1), "a new one has begun"
    assert meter.is_over(0, 1)
