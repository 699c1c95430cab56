"""A loop is as busy as it was in the last looks."""

from __future__ import annotations

from tidelog.broker.face.busy import LOOKS, Busy


def test_it_is_the_share_of_the_last_looks() -> None:
    busy = Busy()
    assert busy.share == 0
    busy.measured(100.0, 7.0)
    assert busy.share == 0
    busy.measured(102.0, 8.0)
    assert busy.share == 0.5
    for number in range(LOOKS):
        busy.measured(103.0 + number, 8.0)
    assert busy.share == 0  # what was before is forgotten


def test_a_look_is_due_after_a_second_and_a_share_is_no_more_than_all() -> None:
    busy = Busy()
    assert busy.is_due(100.0)
    busy.measured(100.0, 7.0)
    assert not busy.is_due(100.9)
    assert busy.is_due(101.0)
    busy.measured(101.0, 8.5)  # clocks differ a little
    assert busy.share == 1
