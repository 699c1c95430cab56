from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.cli.conftest import Tidelog
from tidelog.cli import sim
from tidelog.sim.kit.outcome import Outcome
from tidelog.sim.main import CHUNK_SEEDS, Summary


def failing(runs: int, *asked_for: Any) -> Summary:
    """`asked_for`: simulators, protocols, groups, families of faults."""
    summary = Summary(7, *asked_for)
    for seed in range(7, 7 + runs):
        violations = ("record 3 is lost",) if seed == 7 else ()
        summary.add(Outcome(seed, violations, "first\nlast\n", summary.counters.copy(), 1))
    return summary


def test_good_runs_end_with_their_counters(tidelog: Tidelog) -> None:
    ran = tidelog("sim", "--runs", "2", "--seed", "9", "--json")
    assert (ran.status, ran.err) == (0, "")
    summary = json.loads(ran.out)
    assert (summary["first_seed"], summary["runs"], summary["failures"]) == (9, 2, [])
    kinds = ("disk: ", "cluster: fault")
    assert summary["faults"] == sum(times for name, times in summary["counters"].items() if name.startswith(kinds))


def test_processes_share_the_seeds_and_change_nothing(tidelog: Tidelog) -> None:
    seeds = ("sim", "--of", "storage", "--runs", str(2 * CHUNK_SEEDS), "--json")
    one, two = (json.loads(tidelog(*seeds, "--jobs", jobs).out) for jobs in ("1", "2"))
    assert one == two


@pytest.mark.parametrize(("runs", "shows_trace"), [(1, True), (2, False)])
def test_a_failure_comes_with_the_command_that_repeats_it(
    tidelog: Tidelog, monkeypatch: pytest.MonkeyPatch, runs: int, shows_trace: bool
) -> None:
    monkeypatch.setattr(sim, "run", lambda *_: failing(runs))
    ran = tidelog("sim", "--runs", str(runs))
    assert (ran.status, ran.err) == (1, "")
    assert "seed 7: tidelog sim --runs 1 --seed 7\n  record 3 is lost\n" in ran.out
    assert ("\n  last\n" in ran.out) is shows_trace


def test_the_command_asks_for_the_same_clusters(tidelog: Tidelog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sim, "run", lambda runs, seed, jobs, progress, *asked_for: failing(runs, *asked_for))
    ran = tidelog("sim", "--runs", "2", "--of", "cluster", "--protocol", "mixed")
    assert "seed 7: tidelog sim --runs 1 --seed 7 --of cluster --protocol mixed\n" in ran.out
    ran = tidelog("sim", "--runs", "2", "--of", "cluster", "--groups")
    assert "seed 7: tidelog sim --runs 1 --seed 7 --of cluster --groups\n" in ran.out
    ran = tidelog("sim", "--runs", "2", "--of", "cluster", "--faults", "tail,missing")
    assert "seed 7: tidelog sim --runs 1 --seed 7 --of cluster --faults tail,missing\n" in ran.out


def test_a_family_of_faults_that_there_is_not_is_named(tidelog: Tidelog) -> None:
    ran = tidelog("sim", "--faults", "tail,tali")
    assert ran.status == 2
    assert "'tali' is not a valid Family; there are tail, missing" in ran.err


def test_the_failures_of_a_batch_as_json(tidelog: Tidelog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sim, "run", lambda *_: failing(3))
    ran = tidelog("sim", "--json")
    assert ran.status == 1
    assert json.loads(ran.out)["failures"] == [
        {"seed": 7, "violations": ["record 3 is lost"], "replay": "tidelog sim --runs 1 --seed 7"}
    ]


def test_the_storage_has_nobody_who_acknowledges(tidelog: Tidelog) -> None:
    ran = tidelog("sim", "--of", "storage", "--runs", "2")
    assert (ran.status, ran.out) == (0, "2 runs from seed 0: 0 runs failed\n")


def test_what_a_broker_acknowledged_is_summed_up(tidelog: Tidelog) -> None:
    ran = tidelog("sim", "--of", "broker", "--runs", "1")
    told = ran.out.splitlines()[-1]
    assert told.startswith("1 run from seed 0: ") and " acknowledged, " in told
    assert not told.startswith("1 run from seed 0: 0 records")
