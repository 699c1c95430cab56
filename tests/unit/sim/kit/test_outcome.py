from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from tidelog.sim.kit.outcome import ScenarioOutcome, count_logged


class Scenario(msgspec.Struct, frozen=True):
    seed: int
    steps: tuple[int, ...]


@pytest.mark.parametrize(
    ("failure", "verdict"),
    [
        (None, ""),
        (ValueError("leaders are unique: 1 and 2\n: more"), "leaders are unique"),
        (KeyError("position"), "KeyError 'position'"),
        (AssertionError(), "AssertionError "),
    ],
)
def test_a_verdict_is_what_failed_and_not_where(failure: Exception | None, verdict: str) -> None:
    outcome = ScenarioOutcome(Scenario(7, ()), 1, 0, Counter(), failure)
    assert (outcome.seed, outcome.verdict) == (7, verdict)


def test_what_is_logged_counts_by_a_part_of_it() -> None:
    counters = Counter({"torn tail": 1})
    logs = [{"event": "bytes", "finding": "the last 7 are cut"}, {"event": "opened"}]
    count_logged(counters, logs, {"are cut": "torn tail", "bytes": "bytes"})
    assert counters == {"torn tail": 2, "bytes": 1}
