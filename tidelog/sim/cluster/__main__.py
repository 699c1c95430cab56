"""Command line of the cluster simulator: runs one seed or scenario, or many seeds; prints violations, and shrinks a
scenario that fails."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from functools import partial

from tidelog.sim.cluster.drawing import draw_scenario
from tidelog.sim.cluster.families import ON, Family, families_of
from tidelog.sim.cluster.run import run_scenario, run_seed, run_story, shrink
from tidelog.sim.cluster.scenario import Scenario, decode_scenario, encode_scenario
from tidelog.sim.cluster.stories import STORIES, draw_story
from tidelog.sim.cluster.traffic import Mix
from tidelog.sim.kit.batches import spread

COMMAND = "python -m tidelog.sim.cluster"


def main() -> int:
    """Runs the command. Returns the exit status: 1 if a run failed."""
    options = _parser().parse_args()
    if options.runs > 1:
        return _run_many(options)
    scenario = _scenario(options)
    outcome = run_scenario(scenario, keeps_events=options.trace)
    lines = [*(outcome.events if options.trace else ()), *(outcome.violations or [f"good; trace {outcome.trace}"])]
    if outcome.violations and options.shrink:
        smaller = shrink(scenario)
        lines.append(f"the same rule is broken in {len(smaller.steps)} steps instead of {len(scenario.steps)}:")
        lines.append(f"{COMMAND} --trace --scenario '{encode_scenario(smaller)}'")
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if outcome.violations else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=COMMAND, description="Simulate one cluster, grown from one number.")
    parser.add_argument("--seed", type=int, default=0, help="the number (default %(default)s)")
    parser.add_argument("--protocol", type=Mix, choices=list(Mix), help="how topics commit (default: as the seed says)")
    parser.add_argument(
        "--groups",
        action=argparse.BooleanOptionalAction,
        help="whether there are consumer groups (default: as the seed says)",
    )
    parser.add_argument(
        "--faults",
        type=families_of,
        default=ON,
        metavar="NAMES",
        help=f"families of faults beside the usual ones, with commas: {', '.join(Family)}; all; none",
    )
    parser.add_argument(
        "--story", choices=[*map(str, STORIES)], help="short scenarios about one of these families, or groups, instead"
    )
    parser.add_argument("--runs", type=int, default=1, help="how many seeds (default %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="processes to use (default %(default)s)")
    parser.add_argument("--scenario", help="run this scenario instead, as JSON")
    parser.add_argument("--trace", action="store_true", help="tell what happened, line by line")
    parser.add_argument("--shrink", action="store_true", help="make a failing scenario smaller, which takes minutes")
    return parser


COUNTED = ("fault", "forged", "refused", "loss accepted", "old directory", "gap of", "classic", "mishap")
"""Prefixes of the counters that are printed after a batch of runs."""


def _scenario(options: argparse.Namespace) -> Scenario:
    if options.scenario is not None:
        return decode_scenario(options.scenario)
    if options.story is not None:
        return draw_story(options.story, options.seed)
    return draw_scenario(options.seed, options.protocol, options.groups, options.faults)


def _run_many(options: argparse.Namespace) -> int:
    """Runs many seeds; prints the first violation of each seed that fails, and the counters of events."""
    run = partial(run_seed, mix=options.protocol, groups=options.groups, families=options.faults)
    if options.story is not None:
        run = partial(run_story, options.story)
    failed = 0
    counters: Counter[str] = Counter()
    for outcome in spread(run, range(options.seed, options.seed + options.runs), options.jobs, chunk_items=4):
        counters += outcome.counters
        if outcome.violations:
            failed += 1
            more = f" (and {len(outcome.violations) - 1} more)" if len(outcome.violations) > 1 else ""
            sys.stdout.write(f"seed {outcome.seed}: {outcome.violations[0]}{more}\n")
            sys.stdout.flush()
    happened = [f"{count:8} {name}" for name, count in sorted(counters.items()) if name.startswith(COUNTED)]
    sys.stdout.write("\n".join([*happened, f"{failed} of {options.runs} runs failed"]) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
