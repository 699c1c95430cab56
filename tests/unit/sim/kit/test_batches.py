from __future__ import annotations

from collections import Counter

import pytest

from tests.unit.sim.kit.ran import Ran
from tidelog.sim.kit import batches
from tidelog.sim.kit.batches import Batch, run_seeds, spread


def run(seed: int) -> Ran:
    counters = Counter({"odd": seed % 2, "a hundred": seed // 100})
    return Ran(seed, ValueError(f"bad luck: {seed}") if seed % 70 == 69 else None, counters)


@pytest.mark.parametrize(("failures_max", "failed"), [(1, 1), (3, 4), (99, 4)])
def test_what_comes_of_seeds_does_not_depend_on_how_they_are_spread(failures_max: int, failed: int) -> None:
    alone, both = (run_seeds(run, 5, 330, failures_max=failures_max, jobs=jobs) for jobs in (1, 2))
    assert (alone.runs, alone.amount, alone.counters) == (both.runs, both.amount, both.counters)
    assert [ran.seed for ran in alone.failures] == [ran.seed for ran in both.failures]
    assert [ran.seed for ran in alone.failures] == [69, 139, 209, 279][:failed], (
        "a chunk may have more than were left to find"
    )


def test_a_batch_adds_up_its_runs() -> None:
    batch = run_seeds(run, 10, 4)
    assert (batch.runs, batch.amount, batch.counters["odd"]) == (4, 10 + 11 + 12 + 13, 2)
    assert batch.is_good


def test_a_batch_ends_with_its_last_failure_allowed() -> None:
    batch = run_seeds(run, 0, 1000)
    assert (batch.runs, batch.is_good) == (70, False)


def test_progress_is_told_after_each_chunk() -> None:
    told: list[tuple[int, int]] = []
    run_seeds(run, 0, 250, failures_max=99, progress=lambda batch, count: told.append((batch.runs, count)))
    assert told == [(100, 250), (200, 250), (250, 250)]


def test_a_large_batch_tells_what_never_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    sometimes = ("odd", "a hundred")
    assert run_seeds(run, 0, 60, sometimes=sometimes).is_good
    monkeypatch.setattr(batches, "COUNTED_FROM_RUNS", 60)
    assert run_seeds(run, 0, 60, sometimes=sometimes).never_happened == ["a hundred"]
    assert not Batch[Ran](sometimes, runs=60).is_good


@pytest.mark.parametrize("jobs", [1, 2])
def test_work_is_done_in_the_order_of_the_items(jobs: int) -> None:
    assert list(spread(abs, range(-3, 3), jobs, chunk_items=2)) == [3, 2, 1, 0, 1, 2]
