"""A client repeats no more than its successes allow, and meets an outage with few repetitions, however much waits."""

from __future__ import annotations

import heapq
import random

from hypothesis import given
from hypothesis import strategies as st

from tidelog.sim.kit.environment import SimEntropy
from tidelog.transport.backoff import EXHAUSTED_S, Backoff
from tidelog.transport.retry_budget import RATIO, RESERVE_PER_S, TOKENS_MAX, RetryBudget

steps = st.lists(st.tuples(st.floats(0.0, 5.0), st.integers(0, 200), st.integers(0, 400)), max_size=20)


@given(steps)
def test_repetitions_never_exceed_what_successes_and_time_brought(rounds: list[tuple[float, int, int]]) -> None:
    budget, now_s, successes, taken = RetryBudget(), 1000.0, 0, 0
    assert budget.take(now_s)
    for passed_s, succeeded, asked in rounds:
        now_s += passed_s
        successes += succeeded
        for _ in range(succeeded):
            budget.succeeded()
        taken += sum(budget.take(now_s) for _ in range(asked))
        brought = TOKENS_MAX + RATIO * successes + RESERVE_PER_S * (now_s - 1000.0)
        assert taken + 1 <= brought + 1e-6


def test_time_that_runs_backwards_brings_nothing() -> None:
    budget = RetryBudget()
    while budget.take(10.0):
        pass
    assert not budget.take(5.0)
    assert not budget.take(10.0)
    assert budget.take(10.0 + 1.1 / RESERVE_PER_S)


def test_an_outage_is_met_by_few_tries_and_everything_is_delivered_after_it() -> None:
    """A client with 1,000 requests under way, of a cluster that is away for 30 seconds."""
    waiting, outage_s = 1000, 30.0
    budget, entropy, now_s, tries, delivered = RetryBudget(), SimEntropy(random.Random(1)), 0.0, 0, 0
    backoffs = [Backoff(entropy, may_retry=lambda: budget.take(now_s)) for _ in range(waiting)]
    due = [(0.0, number) for number in range(waiting)]
    while due:
        now_s, number = heapq.heappop(due)
        if now_s >= outage_s:
            delivered += 1
            budget.succeeded()
        else:
            tries += 1
            heapq.heappush(due, (now_s + backoffs[number].next_s(), number))
    assert delivered == waiting
    assert now_s <= outage_s + EXHAUSTED_S
    slow = waiting * (1 + outage_s / (EXHAUSTED_S / 2))
    assert tries <= slow + TOKENS_MAX + RESERVE_PER_S * outage_s
