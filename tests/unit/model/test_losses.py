"""Lookups in lost ranges, against a set of offsets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog.model.losses import AcceptedLoss, LostRanges, with_loss

RANGES = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 6)), max_size=8)


@given(ranges=RANGES, offset=st.integers(0, 60), size=st.integers(0, 20))
def test_lookups_say_what_a_set_of_offsets_says(ranges: list[tuple[int, int]], offset: int, size: int) -> None:
    losses: tuple[AcceptedLoss, ...] = ()
    lost: set[int] = set()
    for at, (start, length) in enumerate(ranges):
        losses = with_loss(losses, AcceptedLoss(start, start + length, at, "op", 1))
        lost.update(range(start, start + length))
    found = LostRanges(losses)
    assert {one for start, end in found for one in range(start, end)} == lost
    assert bool(found) == bool(lost)
    assert all(before[1] < after[0] for before, after in zip(list(found), list(found)[1:], strict=False))
    assert found.past(offset) == next(one for one in range(offset, 100) if one not in lost)
    assert found.covers(offset, offset + size) == all(one in lost for one in range(offset, offset + size))
    kept = [one for start, end in found.rest(offset, offset + size) for one in range(start, end)]
    assert kept == [one for one in range(offset, offset + size) if one not in lost]
    following = found.from_offset(offset)
    assert (following is None) == all(one not in lost for one in range(offset, 100))
