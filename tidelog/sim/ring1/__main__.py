"""Runs seeds, or one scenario; prints what a run came to, and makes a failing one smaller."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import msgspec

from tidelog.adapters.system import SystemClock
from tidelog.replication.paxos.events import Effect, Event
from tidelog.sim.ring1.describe import effect_text, event_text
from tidelog.sim.ring1.drawing import draw_scenario
from tidelog.sim.ring1.run import Batch, Outcome, run_scenario, run_seeds, shrink
from tidelog.sim.ring1.scenario import Scenario
from tidelog.sim.ring1.sim_node import SimNode
from tidelog.sim.ring1.sometimes import SOMETIMES

QUIET_RUNS = 2000
COMMAND = "python -m tidelog.sim.ring1"


def main() -> int:
    """The exit status is 1 if a run failed."""
    parser = argparse.ArgumentParser(prog=COMMAND, description="Simulate the replicated log, each run from one number.")
    parser.add_argument("--runs", type=int, default=1000, help="how many seeds to run (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="the first of them (default %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="processes to run them on (default %(default)s)")
    parser.add_argument("--failures", type=int, default=1, help="stop after so many (default %(default)s)")
    parser.add_argument("--scenario", help="run this scenario instead, as JSON")
    parser.add_argument("--trace", action="store_true", help="tell a single run event by event")
    options = parser.parse_args()
    if options.scenario is not None:
        return _tell(msgspec.json.decode(options.scenario, type=Scenario), trace=options.trace)
    if options.trace:
        return _tell(draw_scenario(options.seed), trace=True)
    return _run(options.seed, options.runs, options.jobs, options.failures)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


def _run(seed: int, runs: int, jobs: int, failures_max: int) -> int:
    clock = SystemClock()
    bar = ProgressBar(clock.monotonic_s)
    batch = run_seeds(seed, runs, failures_max=failures_max, jobs=jobs, progress=bar.show)
    _report(batch, bar.seconds)
    for outcome in batch.failures:
        _explain(outcome)
    for name in batch.never_happened:
        _say(f"never happened, the runs have become too tame: {name}")
    return 1 if batch.failures or batch.never_happened else 0


class ProgressBar:
    """On a terminal a bar that grows; in a file a line for each percent. Nothing for what is over at once."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._begin_s = now_s()
        self._percent = 0

    @property
    def seconds(self) -> float:
        return self._now_s() - self._begin_s

    def show(self, batch: Batch, runs: int) -> None:
        percent = 100 * batch.runs // runs
        if percent == self._percent or runs < QUIET_RUNS:
            return
        self._percent = percent
        failed = "".join(f", seed {outcome.scenario.seed} failed" for outcome in batch.failures)
        left_s = self.seconds * (runs - batch.runs) / batch.runs
        line = f"{percent:3d}% {'#' * (percent // 5):20} {batch.runs} runs, {left_s:.0f} s left{failed}"
        sys.stderr.write(f"\r{line}" if sys.stderr.isatty() else f"{line}\n")
        sys.stderr.write("\n" if sys.stderr.isatty() and batch.runs == runs else "")
        sys.stderr.flush()


def _report(batch: Batch, seconds: float) -> None:
    for name in SOMETIMES:
        _say(f"{batch.counters[name]:10d}  {name}")
    rate = batch.runs / seconds if seconds else 0.0
    _say(f"{batch.runs} runs, {batch.events} events, {len(batch.failures)} failures, {rate:.0f} runs/s")


def _explain(outcome: Outcome) -> None:
    _say(f"\nseed {outcome.scenario.seed}: {outcome.failure}")
    _say(f"again: {COMMAND} --seed {outcome.scenario.seed} --trace")
    smaller = shrink(outcome)
    _say(f"smaller, {len(smaller.plan)} actions of {len(outcome.scenario.plan)}:")
    _say(f"{COMMAND} --trace --scenario '{msgspec.json.encode(smaller).decode()}'")


def _tell(scenario: Scenario, *, trace: bool) -> int:
    outcome = run_scenario(scenario, observer=_show if trace else None)
    _say(f"{outcome.events} events, trace {outcome.trace:08x}")
    if outcome.failure is not None:
        _say(f"failed: {outcome.failure}")
    return 1 if outcome.failure is not None else 0


def _show(now: int, node: SimNode, event: Event, effects: list[Effect]) -> None:
    _say(f"{now:6d} {node.node}  {event_text(event)}")
    for effect in effects:
        _say(f"           {effect_text(effect)}")


if __name__ == "__main__":
    sys.exit(main())
