"""Runs seeds, or one scenario; prints what a run came to, and makes a failing one smaller."""

from __future__ import annotations

import argparse
import sys

import msgspec

from tidelog.adapters.system import SystemClock
from tidelog.replication.paxos.events import Effect, Event
from tidelog.sim.kit.progress import ProgressBar
from tidelog.sim.kit.report import report, say
from tidelog.sim.paxos.describe import effect_text, event_text
from tidelog.sim.paxos.drawing import draw_scenario
from tidelog.sim.paxos.run import Outcome, run_scenario, run_seeds, shrink
from tidelog.sim.paxos.scenario import Scenario
from tidelog.sim.paxos.sim_node import SimNode

COMMAND = "python -m tidelog.sim.paxos"


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


def _run(seed: int, runs: int, jobs: int, failures_max: int) -> int:
    clock = SystemClock()
    bar = ProgressBar("", clock.monotonic_s)
    batch = run_seeds(seed, runs, failures_max=failures_max, jobs=jobs, progress=bar.show)
    report(batch, bar.seconds, label="", amounts="events", explain=_explain)
    return 0 if batch.is_good else 1


def _explain(outcome: Outcome) -> None:
    say(f"\nseed {outcome.seed}: {outcome.failure}")
    say(f"again: {COMMAND} --seed {outcome.seed} --trace")
    smaller = shrink(outcome)
    say(f"smaller, {len(smaller.plan)} actions of {len(outcome.scenario.plan)}:")
    say(f"{COMMAND} --trace --scenario '{msgspec.json.encode(smaller).decode()}'")


def _tell(scenario: Scenario, *, trace: bool) -> int:
    outcome = run_scenario(scenario, observer=_show if trace else None)
    say(f"{outcome.events} events, trace {outcome.trace:08x}")
    if outcome.failure is not None:
        say(f"failed: {outcome.failure}")
    return 1 if outcome.failure is not None else 0


def _show(now: int, node: SimNode, event: Event, effects: list[Effect]) -> None:
    say(f"{now:6d} {node.node}  {event_text(event)}")
    for effect in effects:
        say(f"           {effect_text(effect)}")


if __name__ == "__main__":
    sys.exit(main())
