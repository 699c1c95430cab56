"""The steps in which an open batch takes memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.producer.steps import FACTOR, FIRST_BYTES, step_for


@pytest.mark.parametrize(
    ("needed", "batch", "step"),
    [
        (1, 65_536, 1_024),
        (1_024, 65_536, 1_024),
        (1_025, 65_536, 2_048),
        (16_385, 65_536, 32_768),
        (16_385, 20_000, 20_000),
        (70_000, 65_536, 70_000),
        (1, 128, 128),
        (200, 128, 200),
    ],
)
def test_a_step_is_the_smallest_that_holds_what_is_needed(needed: int, batch: int, step: int) -> None:
    assert step_for(needed, batch) == step


@given(st.integers(1, 1 << 20), st.integers(128, 1 << 20))
def test_a_step_holds_what_is_needed_and_little_more(needed: int, batch: int) -> None:
    step = step_for(needed, batch)
    assert needed <= step <= max(FACTOR * needed, FIRST_BYTES)
    assert step <= max(batch, needed)
