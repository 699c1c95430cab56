"""The rate is kept, over any stretch of time and for any sizes of batches."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.replication.token_bucket import BURST_S, QUANTUM_S, UNLIMITED, TokenBucket

RATE = 1_000_000


def bucket(rate: int | None = RATE) -> TokenBucket:
    made = TokenBucket()
    made.set_rate(rate, 100.0)
    return made


def test_without_a_rate_everything_is_allowed() -> None:
    free = bucket(None)
    free.spend(10**12, 100.0)
    assert (free.allowance(100.0), free.ready_in_s(100.0)) == (UNLIMITED, 0.0)


def test_it_begins_empty_and_holds_no_more_than_a_burst() -> None:
    limited = bucket()
    assert limited.allowance(100.0) == 0
    assert limited.allowance(100.1) == pytest.approx(100_000, abs=1)
    assert limited.allowance(200.0) == BURST_S * RATE


def test_crumbs_are_not_given_out() -> None:
    limited = bucket()
    assert limited.ready_in_s(100.0) == pytest.approx(QUANTUM_S)
    assert limited.allowance(100.0 + QUANTUM_S * 0.9) == 0
    assert limited.allowance(100.0 + QUANTUM_S * 1.01) > 0


def test_a_batch_that_was_too_large_is_a_debt() -> None:
    limited = bucket()
    limited.spend(3 * RATE, 101.0)
    assert limited.ready_in_s(101.0) == pytest.approx(3 - BURST_S + QUANTUM_S)
    assert limited.allowance(103.0) == 0
    assert limited.allowance(104.0) > 0


def test_a_debt_lasts_until_the_rate_has_paid_it() -> None:
    limited = bucket()
    assert limited.owed_s(101.0) == 0.0
    limited.spend(3 * RATE, 101.0)
    assert limited.owed_s(101.0) == pytest.approx(3 - BURST_S)
    assert limited.owed_s(102.0) == pytest.approx(2 - BURST_S)
    assert limited.owed_s(104.0) == 0.0
    free = bucket(None)
    free.spend(10**12, 100.0)
    assert free.owed_s(100.0) == 0.0


def test_a_bucket_that_is_filled_has_a_burst_at_once_and_no_more() -> None:
    limited = bucket()
    limited.fill(150.0)
    assert limited.allowance(150.0) == BURST_S * RATE
    limited.spend(RATE, 150.0)
    limited.fill(140.0)
    assert limited.allowance(140.0) == BURST_S * RATE
    limited.spend(BURST_S * RATE, 140.0)
    assert limited.allowance(150.0) == 0, "the time until then has been counted"


def test_another_rate_holds_from_now_on_and_keeps_the_debt() -> None:
    limited = bucket()
    limited.spend(RATE, 100.0)
    limited.set_rate(10 * RATE, 100.0)
    assert limited.allowance(100.1) == 0
    assert limited.allowance(100.2) == pytest.approx(RATE, rel=0.01)
    limited.set_rate(None, 100.2)
    assert limited.allowance(100.2) == UNLIMITED


def test_a_clock_that_runs_backwards_brings_nothing() -> None:
    limited = bucket()
    assert limited.allowance(100.2) == pytest.approx(200_000, abs=1)
    assert limited.allowance(99.0) == pytest.approx(200_000, abs=1)
    assert limited.allowance(100.2) == pytest.approx(200_000, abs=1)


@given(st.integers(0, 2**32), st.integers(1, 10**9), st.integers(1, 1 << 20))
def test_the_rate_is_kept_over_any_stretch_of_time(seed: int, rate: int, batch_bytes: int) -> None:
    rng = random.Random(seed)
    limited, now_s = bucket(rate), 100.0
    moved: list[tuple[float, int]] = []
    for _ in range(300):
        now_s += rng.choice([0.0, 0.001, 0.05, 1.0]) * rng.random()
        allowed = limited.allowance(now_s)
        if allowed:
            count = max(batch_bytes, rng.randint(1, allowed))
            limited.spend(count, now_s)
            moved.append((now_s, count))
    for first in range(0, len(moved), 7):
        for last in range(first, len(moved), 5):
            stretch_s = moved[last][0] - moved[first][0]
            total = sum(count for _, count in moved[first : last + 1])
            assert total <= rate * (stretch_s + BURST_S) + max(batch_bytes, 1) + 1


def test_whoever_asks_when_it_is_ready_gets_the_whole_rate() -> None:
    limited, now_s, moved = bucket(), 100.0, 0
    while now_s < 160.0:
        now_s += limited.ready_in_s(now_s) + 1e-6
        count = limited.allowance(now_s)
        limited.spend(count, now_s)
        moved += count
    assert moved == pytest.approx(60 * RATE, rel=0.01)
