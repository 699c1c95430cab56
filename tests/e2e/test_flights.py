"""The examples, run as a user runs them: real rows, real processes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.integration.cli.conftest import environment

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = pytest.mark.process


def run_example(name: str, *words: str, timeout_s: int = 50) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, EXAMPLES / name, *words],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
        timeout=timeout_s,
    )


STEPS = ("starting ", "it listens ", "making ", "writing ")


def complaints(ran: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines of standard error that are not the steps an example tells of."""
    return [line for line in ran.stderr.splitlines() if not line.startswith(STEPS)]


def facts(printed: str) -> dict[str, str]:
    """The table of what came back: name and value are two spaces or more apart."""
    parts = (line.rstrip().rpartition("  ") for line in printed.splitlines()[1:])
    return {name.strip(): value.strip() for name, _, value in parts}


def test_flights_come_back_as_they_were_sent() -> None:
    ran = run_example("flights.py", "--limit", "5000")
    assert (ran.returncode, complaints(ran)) == (0, [])
    shown = facts(ran.stdout)
    assert (shown["records"], shown["partitions"], shown["carriers"]) == ("5,000", "3", "15")
    assert shown["every byte and order verified"] == "yes"


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("protocol", ["isr", "paxos"])
def test_they_do_through_brokers_that_are_broken(protocol: str) -> None:
    ran = run_example("flights_faults.py", "--protocol", protocol, "--faults", "8", timeout_s=150)
    assert (ran.returncode, complaints(ran)) == (0, [])
    assert facts(ran.stdout)["every acknowledged record once and in order"] == "yes"


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_year_of_flights_comes_back_as_it_was_sent() -> None:
    ran = run_example("flights.py", timeout_s=150)
    assert (ran.returncode, complaints(ran)) == (0, [])
    shown = facts(ran.stdout)
    assert (shown["records"], shown["carriers"]) == ("336,776", "16")
    assert shown["every byte and order verified"] == "yes"


@pytest.mark.slow
def test_a_group_shares_them() -> None:
    ran = run_example("group_of_consumers.py", "--limit", "20000")
    assert (ran.returncode, complaints(ran)) == (0, [])
    assert ran.stdout.splitlines()[-1] == "20,000 of 20,000 rows, 0 of them again"


def test_an_error_is_said_in_one_line() -> None:
    ran = run_example("flights.py", "--limit", "1", "--bootstrap", "kafka://127.0.0.1")
    assert (ran.returncode, ran.stdout) == (1, "")
    [line] = complaints(ran)
    assert line.startswith("error: bootstrap address 'kafka://127.0.0.1' is neither")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_is_enough() -> None:
    ran = run_example("curl_flights.py")
    assert (ran.returncode, complaints(ran)) == (0, [])
    outcomes = [line for line in ran.stdout.splitlines() if not line.startswith("$ ")]
    assert len(outcomes) == 4
    assert all(line.endswith(": 1000 records, as they were sent") for line in outcomes)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_is_a_consumer_at_three_brokers_in_turn() -> None:
    ran = run_example("curl_consumer.py")
    assert (ran.returncode, complaints(ran)) == (0, [])
    requests = [line for line in ran.stdout.splitlines() if line.startswith("$ ")]
    outcomes = [line for line in ran.stdout.splitlines() if not line.startswith("$ ")]
    assert len(outcomes) == 4
    assert all(line.endswith(": yes") for line in outcomes)
    asked = [line.rpartition("http://")[2].split("/")[0] for line in requests]
    assert len({*asked}) == 3
    assert all(one != other for one, other in pairwise(asked))


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("protocol", ["isr", "paxos"])
def test_a_group_keeps_its_promises_while_it_is_broken(protocol: str) -> None:
    """How soon it is stable depends on the machine, so that alone may be late here, and nothing else wrong."""
    ran = run_example("group_faults.py", "--seconds", "25", "--protocol", protocol, "--json", timeout_s=220)
    assert complaints(ran) == []
    figures = json.loads(ran.stdout)["figures"]
    wrong = (
        "acknowledged_not_handed_out", "different", "offsets_beyond", "offsets_back", "partitions_behind",
        "owned_twice", "handed_out_by_two",
    )  # fmt: skip
    assert [figures[name] for name in wrong] == [0] * len(wrong)
    assert min(figures[name] for name in ("records_acknowledged", "assignments", "offsets_seen")) > 0
