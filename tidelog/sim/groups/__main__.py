"""Command line of the simulator of classic groups: runs seeds, or one scenario."""

from __future__ import annotations

import sys
from functools import partial

import msgspec

from tidelog.sim.groups.plan import Scenario, draw_scenario
from tidelog.sim.groups.run import Outcome, run_groups, run_scenario
from tidelog.sim.kit.program import Program, options_of, scenario_of

COMMAND = "python -m tidelog.sim.groups"


def main() -> int:
    """Runs the command. Returns the exit status."""
    options = options_of(COMMAND, "Simulate classic groups, each run from one number.").parse_args()
    program = Program(COMMAND, "commits kept", shrink)
    if options.scenario is not None or options.trace:
        scenario = scenario_of(options, draw_scenario(options.seed))
        return program.tell(run_scenario(scenario))
    run = partial(run_groups, options.seed, options.runs, failures_max=options.failures, jobs=options.jobs)
    return program.run(lambda progress: run(progress=progress), {}, is_json=options.json)


def shrink(outcome: Outcome) -> Scenario:
    """Returns a scenario that fails, too, and in which no step can be left out."""
    scenario = outcome.scenario
    for step in scenario.steps:
        smaller = msgspec.structs.replace(scenario, steps=tuple(one for one in scenario.steps if one is not step))
        if run_scenario(smaller).failure is not None:
            scenario = smaller
    return scenario


if __name__ == "__main__":
    sys.exit(main())
