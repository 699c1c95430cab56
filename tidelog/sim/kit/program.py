"""Command line of a simulator: runs seeds or one scenario, and makes a failing scenario smaller.

The exit status is 1 if a run failed, or if an event that has to happen now and then never did.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from tidelog.adapters.system import SystemClock
from tidelog.sim.kit.batches import Batch, Progress
from tidelog.sim.kit.outcome import S, Scenario, ScenarioOutcome
from tidelog.sim.kit.progress import ProgressBar

R = TypeVar("R", bound=ScenarioOutcome[Any])


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


def options_of(command: str, description: str) -> argparse.ArgumentParser:
    """Returns a parser of the options that all simulators have."""
    parser = argparse.ArgumentParser(prog=command, description=description)
    parser.add_argument("--runs", type=int, default=1000, help="how many seeds to run (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="the first of them (default %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="processes to run them on (default %(default)s)")
    parser.add_argument("--failures", type=int, default=1, help="stop after so many (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the sum as a JSON object, and nothing else")
    parser.add_argument("--scenario", help="run this scenario instead, as JSON")
    parser.add_argument("--trace", action="store_true", help="tell a single run step by step")
    return parser


def scenario_of(options: argparse.Namespace, drawn: S) -> S:
    """Returns the scenario that the command line names, by default the drawn one."""
    return drawn if options.scenario is None else msgspec.json.decode(options.scenario, type=type(drawn))


@dataclass(frozen=True)
class Program(Generic[R]):
    """Command line of one simulator."""

    command: str
    amounts: str
    """Noun for the unit of an outcome's amount, such as "batches committed"."""
    shrink: Callable[[R], Scenario]

    def run(self, run: Callable[[Progress[R]], Batch[R]], about: Mapping[str, str], *, is_json: bool) -> int:
        """Runs a batch and prints its outcome; returns the exit status. `about` has the options, by name, that select
        these runs besides the seed; they are printed with the outcome, and in the command that repeats a failure."""
        label = " ".join(about.values())
        bar = ProgressBar(f"{label:10} " if label else "", SystemClock().monotonic_s)
        batch = run(bar.show)
        if is_json:
            say(msgspec.json.encode({**about, **_document(batch, bar.seconds)}).decode())
        else:
            self._report(batch, bar.seconds, label)
            for outcome in batch.failures:
                self._explain(outcome, about)
        return 0 if batch.is_good else 1

    def _report(self, batch: Batch[R], seconds: float, label: str) -> None:
        """Prints the counts of events."""
        for name in batch.sometimes:
            say(f"{batch.counters[name]:10d}  {name}")
        rate = batch.runs / seconds if seconds else 0.0
        done = f"{batch.runs} runs, {batch.amount} {self.amounts}, {len(batch.failures)} failures, {rate:.0f} runs/s"
        say(f"{label}: {done}" if label else done)
        for name in batch.never_happened:
            say(f"never happened, the runs have become too tame: {name}")

    def _explain(self, outcome: R, about: Mapping[str, str]) -> None:
        """Prints the failure, the command that repeats it, and a smaller scenario that fails alike."""
        say(f"\n{''.join(f'{value} ' for value in about.values())}seed {outcome.seed}: {outcome.failure}")
        options = "".join(f" --{name} {value}" for name, value in about.items())
        say(f"again: {self.command}{options} --seed {outcome.seed} --trace")
        smaller = self.shrink(outcome)
        say(f"smaller, {len(smaller.steps)} steps of {len(outcome.scenario.steps)}:")
        say(f"{self.command} --trace --scenario '{msgspec.json.encode(smaller).decode()}'")

    def tell(self, outcome: R) -> int:
        """Prints the outcome of a single run; returns the exit status."""
        say(f"{outcome.amount} {self.amounts}, trace {outcome.trace:08x}")
        if outcome.failure is None:
            return 0
        say(f"failed: {outcome.failure}")
        return 1


def _document(batch: Batch[Any], seconds: float) -> dict[str, object]:
    return {
        "runs": batch.runs,
        "amount": batch.amount,
        "seconds": round(seconds, 3),
        "failures": [{"seed": outcome.seed, "failure": str(outcome.failure)} for outcome in batch.failures],
        "never_happened": batch.never_happened,
        "counters": dict(sorted(batch.counters.items())),
    }
