"""Runs one seed, or one scenario, of a cluster; tells what happened, and makes a failing one smaller."""

from __future__ import annotations

import argparse
import sys

from tidelog.sim.cluster.drawing import draw_scenario
from tidelog.sim.cluster.run import run_scenario, shrink
from tidelog.sim.cluster.scenario import Scenario, decode_scenario, encode_scenario
from tidelog.sim.cluster.traffic import Mix

COMMAND = "python -m tidelog.sim.cluster"


def main() -> int:
    """The exit status is 1 if the run failed."""
    parser = argparse.ArgumentParser(prog=COMMAND, description="Simulate one cluster, grown from one number.")
    parser.add_argument("--seed", type=int, default=0, help="the number (default %(default)s)")
    parser.add_argument("--protocol", type=Mix, choices=list(Mix), help="how topics commit (default: as the seed says)")
    parser.add_argument(
        "--groups",
        action=argparse.BooleanOptionalAction,
        help="whether there are consumer groups (default: as the seed says)",
    )
    parser.add_argument("--scenario", help="run this scenario instead, as JSON")
    parser.add_argument("--trace", action="store_true", help="tell what happened, line by line")
    parser.add_argument("--shrink", action="store_true", help="make a failing scenario smaller, which takes minutes")
    options = parser.parse_args()
    scenario = _scenario(options)
    outcome = run_scenario(scenario, keeps_events=options.trace)
    lines = [*(outcome.events if options.trace else ()), *(outcome.violations or [f"good; trace {outcome.trace}"])]
    if outcome.violations and options.shrink:
        smaller = shrink(scenario)
        lines.append(f"the same rule is broken in {len(smaller.steps)} steps instead of {len(scenario.steps)}:")
        lines.append(f"{COMMAND} --trace --scenario '{encode_scenario(smaller)}'")
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if outcome.violations else 0


def _scenario(options: argparse.Namespace) -> Scenario:
    if options.scenario is not None:
        return decode_scenario(options.scenario)
    return draw_scenario(options.seed, options.protocol, options.groups)


if __name__ == "__main__":
    sys.exit(main())
