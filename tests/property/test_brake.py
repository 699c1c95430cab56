"""The brake takes what lasts for load, and no single pause; its levels come in order, and end at half the lag."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.face.brake import CALM_MEASURE_S, FACTORS, MEASURE_S, MEASUREMENTS, Brake

LAG_S = 0.2
lags = st.lists(st.floats(0.0, 2.0), max_size=60)


def _measured(*lags_s: float) -> Brake:
    brake = Brake(LAG_S)
    for lag_s in lags_s:
        brake.measured(lag_s)
    return brake


@given(lags)
def test_a_level_rises_only_if_most_of_the_last_lags_reach_its_bound(lags_s: list[float]) -> None:
    brake = Brake(LAG_S)
    for number, lag_s in enumerate(lags_s, 1):
        before = brake.level
        brake.measured(lag_s)
        if brake.level > before:
            bound_s = LAG_S * FACTORS[brake.level - 1]
            recent = lags_s[max(0, number - MEASUREMENTS) : number]
            assert sum(one >= bound_s for one in recent) > MEASUREMENTS // 2


@given(lags)
def test_a_loop_that_is_in_time_again_ends_all_levels(lags_s: list[float]) -> None:
    assert _measured(*lags_s, *[0.0] * MEASUREMENTS).level == 0


@given(st.lists(st.floats(0.0, 0.09), min_size=4, max_size=30), st.floats(0.0, 60.0))
def test_one_pause_of_any_length_is_no_load(lags_s: list[float], pause_s: float) -> None:
    assert _measured(*lags_s, pause_s, *lags_s).level == 0


def test_levels_come_in_order_and_are_left_at_half_of_what_they_are_reached_at() -> None:
    brake = Brake(LAG_S)
    seen = []
    for lag_s in (0.19, 0.21, 0.41, 0.81, 0.41, 0.39, 0.21, 0.19, 0.11, 0.09):
        for _ in range(MEASUREMENTS):
            brake.measured(lag_s)
        seen.append(brake.level)
    assert seen == [0, 1, 2, 3, 3, 2, 2, 1, 1, 0]


def test_a_late_timer_is_followed_up_at_once_and_a_loop_in_time_is_measured_seldom() -> None:
    assert _measured().next_s == CALM_MEASURE_S
    assert _measured(LAG_S / 2).next_s == MEASURE_S
    assert _measured(LAG_S / 2, *[0.0] * MEASUREMENTS).next_s == CALM_MEASURE_S
