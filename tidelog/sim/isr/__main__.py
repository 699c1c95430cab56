"""Runs seeds of fault mixes; prints what came of them, and makes a failing plan smaller."""

from __future__ import annotations

import argparse
import sys

import msgspec

from tidelog.adapters.system import SystemClock
from tidelog.sim.isr.describe import state_text
from tidelog.sim.isr.parts import SHIPPED, Parts
from tidelog.sim.isr.plans import MIXES, Plan, Step, draw_plan
from tidelog.sim.isr.repairing import Repairing
from tidelog.sim.isr.run import Outcome, run_plan, run_seeds, shrink
from tidelog.sim.kit.batches import Batch
from tidelog.sim.kit.progress import ProgressBar
from tidelog.sim.kit.report import report, say

COMMAND = "python -m tidelog.sim.isr"


def main(parts: Parts = SHIPPED) -> int:
    """The exit status is 1 if a run failed, or if what has to happen now and then never did."""
    parser = argparse.ArgumentParser(
        prog=COMMAND, description="Simulate primary-backup partitions, each run from one number."
    )
    parser.add_argument("--runs", type=int, default=1000, help="how many seeds of each mix (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="the first of them (default %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="processes to run them on (default %(default)s)")
    parser.add_argument("--mix", choices=[*MIXES, "all"], default="all", help="the faults (default %(default)s)")
    parser.add_argument("--failures", type=int, default=1, help="stop a mix after so many (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object for each mix, and nothing else")
    parser.add_argument("--plan", help="run this plan instead, as JSON")
    parser.add_argument("--trace", action="store_true", help="tell a single run step by step")
    options = parser.parse_args()
    mixes = [*MIXES] if options.mix == "all" else [options.mix]
    if options.plan is not None or options.trace:
        plan = draw_plan(mixes[0], options.seed)
        if options.plan is not None:
            plan = msgspec.json.decode(options.plan, type=Plan)
        return _tell(run_plan(plan, parts, _show if options.trace else None))
    program = Program(options.seed, options.runs, options.jobs, options.failures, parts, is_json=options.json)
    return max([program.run(mix) for mix in mixes])


class Program:
    """The runs that were asked for, mix by mix."""

    def __init__(self, seed: int, runs: int, jobs: int, failures_max: int, parts: Parts, *, is_json: bool) -> None:
        self._seed = seed
        self._parts = parts
        self._runs = runs
        self._jobs = jobs
        self._failures_max = failures_max
        self._is_json = is_json
        self._clock = SystemClock()

    def run(self, mix: str) -> int:
        """The exit status."""
        bar = ProgressBar(f"{mix:10} ", self._clock.monotonic_s)
        batch = run_seeds(
            mix,
            self._seed,
            self._runs,
            parts=self._parts,
            failures_max=self._failures_max,
            jobs=self._jobs,
            progress=bar.show,
        )
        if self._is_json:
            say(msgspec.json.encode(_summary(mix, batch, bar.seconds)).decode())
        else:
            report(batch, bar.seconds, label=f"{mix}: ", amounts="batches committed", explain=self._explain)
        return 0 if batch.is_good else 1

    def _explain(self, outcome: Outcome) -> None:
        plan = outcome.plan
        say(f"\n{plan.mix} seed {plan.seed}: {outcome.failure}")
        say(f"again: {COMMAND} --mix {plan.mix} --seed {plan.seed} --trace")
        smaller = shrink(outcome, self._parts)
        say(f"smaller, {len(smaller.steps)} steps of {len(plan.steps)}:")
        say(f"{COMMAND} --trace --plan '{msgspec.json.encode(smaller).decode()}'")


def _summary(mix: str, batch: Batch[Outcome], seconds: float) -> dict[str, object]:
    return {
        "mix": mix,
        "runs": batch.runs,
        "committed": batch.amount,
        "seconds": round(seconds, 3),
        "failures": [{"seed": outcome.seed, "failure": str(outcome.failure)} for outcome in batch.failures],
        "never_happened": batch.never_happened,
        "counters": dict(sorted(batch.counters.items())),
    }


def _tell(outcome: Outcome) -> int:
    say(f"{outcome.committed} batches committed, trace {outcome.trace:08x}")
    if outcome.failure is not None:
        say(f"failed: {outcome.failure}")
    return 1 if outcome.failure is not None else 0


def _show(number: int, step: Step, world: Repairing) -> None:
    say(f"{number:4d} {step.action:16} {state_text(world)}")


if __name__ == "__main__":
    sys.exit(main())
