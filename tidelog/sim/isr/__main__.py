"""Runs seeds of fault mixes; prints what came of them, and makes a failing plan smaller."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import msgspec

from tidelog.adapters.system import SystemClock
from tidelog.sim.isr.describe import state_text
from tidelog.sim.isr.mutants import MUTANTS, Mutant, planted
from tidelog.sim.isr.plans import MIXES, Plan, Step, draw_plan
from tidelog.sim.isr.repairing import Repairing
from tidelog.sim.isr.run import Batch, Outcome, run_plan, run_seeds, shrink
from tidelog.sim.isr.sometimes import SOMETIMES
from tidelog.sim.isr.world import Parts

QUIET_RUNS = 2_000
COMMAND = "python -m tidelog.sim.isr"


def main() -> int:
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
    parser.add_argument("--mutant", choices=[*MUTANTS], help="plant this bug: how soon is it found?")
    parser.add_argument("--plan", help="run this plan instead, as JSON")
    parser.add_argument("--trace", action="store_true", help="tell a single run step by step")
    options = parser.parse_args()
    with planted(MUTANTS[options.mutant] if options.mutant else Mutant()) as parts:
        mixes = [*MIXES] if options.mix == "all" else [options.mix]
        if options.plan is not None or options.trace:
            plan = draw_plan(mixes[0], options.seed)
            if options.plan is not None:
                plan = msgspec.json.decode(options.plan, type=Plan)
            return _tell(run_plan(plan, parts, _show if options.trace else None))
        program = Program(options.seed, options.runs, options.jobs, options.failures, parts, is_json=options.json)
        return max([program.run(mix) for mix in mixes])


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


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
        bar = ProgressBar(mix, self._clock.monotonic_s)
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
            _say(msgspec.json.encode(_summary(batch, bar.seconds)).decode())
        else:
            self._report(batch, bar.seconds)
        return 1 if batch.failures or batch.never_happened else 0

    def _report(self, batch: Batch, seconds: float) -> None:
        for name in SOMETIMES[batch.mix]:
            _say(f"{batch.counters[name]:10d}  {name}")
        rate = batch.runs / seconds if seconds else 0.0
        _say(
            f"{batch.mix}: {batch.runs} runs, {batch.committed} batches committed, {len(batch.failures)} failures, "
            f"{rate:.0f} runs/s"
        )
        for outcome in batch.failures:
            self._explain(outcome)
        for name in batch.never_happened:
            _say(f"never happened, the runs have become too tame: {name}")

    def _explain(self, outcome: Outcome) -> None:
        plan = outcome.plan
        _say(f"\n{plan.mix} seed {plan.seed}: {outcome.failure}")
        _say(f"again: {COMMAND} --mix {plan.mix} --seed {plan.seed} --trace")
        smaller = shrink(outcome, self._parts)
        _say(f"smaller, {len(smaller.steps)} steps of {len(plan.steps)}:")
        _say(f"{COMMAND} --trace --plan '{msgspec.json.encode(smaller).decode()}'")


class ProgressBar:
    """On a terminal a bar that grows; in a file a line for each percent. Nothing for what is over at once."""

    def __init__(self, mix: str, now_s: Callable[[], float]) -> None:
        self._mix = mix
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
        failed = "".join(f", seed {outcome.plan.seed} failed" for outcome in batch.failures)
        left_s = self.seconds * (runs - batch.runs) / batch.runs
        line = f"{self._mix:10} {percent:3d}% {'#' * (percent // 5):20} {batch.runs} runs, {left_s:.0f} s left{failed}"
        sys.stderr.write(f"\r{line}" if sys.stderr.isatty() else f"{line}\n")
        sys.stderr.write("\n" if sys.stderr.isatty() and batch.runs == runs else "")
        sys.stderr.flush()


def _summary(batch: Batch, seconds: float) -> dict[str, object]:
    return {
        "mix": batch.mix,
        "runs": batch.runs,
        "committed": batch.committed,
        "seconds": round(seconds, 3),
        "failures": [{"seed": outcome.plan.seed, "failure": str(outcome.failure)} for outcome in batch.failures],
        "never_happened": batch.never_happened,
        "counters": dict(sorted(batch.counters.items())),
    }


def _tell(outcome: Outcome) -> int:
    _say(f"{outcome.committed} batches committed, trace {outcome.trace:08x}")
    if outcome.failure is not None:
        _say(f"failed: {outcome.failure}")
    return 1 if outcome.failure is not None else 0


def _show(number: int, step: Step, world: Repairing) -> None:
    _say(f"{number:4d} {step.action:16} {state_text(world)}")


if __name__ == "__main__":
    sys.exit(main())
