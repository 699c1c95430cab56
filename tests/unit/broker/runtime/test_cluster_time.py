"""The wall clock of a broker, held against those of the others."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tidelog.broker.runtime.cluster_time import ClusterTime

SKEW_MS = 30_000
HOUR_MS = 3_600_000
BEGIN_MS = 1_000_000_000


@dataclass
class Own:
    """A clock that can be set."""

    wall: int = BEGIN_MS
    now: float = 100.0

    def monotonic_s(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return self.wall

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.wall += int(seconds * 1000)


def compared(own: Own, offset_ms: int = 0) -> ClusterTime:
    time = ClusterTime(own, SKEW_MS)
    own.sleep(1)
    time.compared(own.now, offset_ms)
    return time


def test_nothing_is_deleted_before_the_others_were_asked() -> None:
    own = Own()
    assert not ClusterTime(own, SKEW_MS).may_delete
    assert compared(own).may_delete


@pytest.mark.parametrize("offset_ms", [HOUR_MS, -HOUR_MS, 24 * HOUR_MS])
def test_a_clock_that_is_off_gives_the_others_time_and_deletes_nothing(offset_ms: int) -> None:
    own = Own(BEGIN_MS + offset_ms)
    time = compared(own, offset_ms)
    assert time.is_off and not time.may_delete
    assert time.wall_ms() == BEGIN_MS + 1_000
    own.sleep(5)
    assert time.wall_ms() == BEGIN_MS + 6_000
    assert time.own_ms == BEGIN_MS + 6_000 + offset_ms
    own.wall -= offset_ms
    time.compared(own.now, 0)
    assert time.wall_ms() == BEGIN_MS + 6_000, "it was set right, and the others say so"
    assert time.may_delete and not time.is_off


def test_a_small_difference_is_left_alone() -> None:
    own = Own()
    time = compared(own, SKEW_MS)
    assert time.may_delete and time.wall_ms() == own.wall


@pytest.mark.parametrize("set_by_ms", [HOUR_MS, -HOUR_MS])
def test_after_the_clock_was_set_the_old_time_goes_on_until_the_others_are_asked(set_by_ms: int) -> None:
    own = Own()
    time = compared(own)
    before_s = own.now
    own.sleep(1)
    own.wall += set_by_ms
    assert not time.may_delete
    assert time.wall_ms() == BEGIN_MS + 2_000
    time.compared(before_s, 0)
    assert not time.may_delete, "that heartbeat was sent before"
    own.sleep(1)
    time.compared(own.now, 0)
    assert time.may_delete and time.wall_ms() == own.wall, "the others were set, too: it was wrong before"
