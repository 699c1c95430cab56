"""Command line of the Paxos simulator: runs seeds, or one scenario."""

from __future__ import annotations

import sys

from tidelog.replication.paxos.events import Effect, Event
from tidelog.sim.kit.program import Program, options_of, say, scenario_of
from tidelog.sim.paxos.describe import effect_text, event_text
from tidelog.sim.paxos.drawing import draw_scenario
from tidelog.sim.paxos.run import run_scenario, run_seeds, shrink
from tidelog.sim.paxos.sim_node import SimNode

COMMAND = "python -m tidelog.sim.paxos"


def main() -> int:
    """Runs the command and returns its exit status."""
    options = options_of(COMMAND, "Simulate the replicated log, each run from one number.").parse_args()
    program = Program(COMMAND, "events", shrink)
    if options.scenario is not None or options.trace:
        scenario = scenario_of(options, draw_scenario(options.seed))
        return program.tell(run_scenario(scenario, observer=_show if options.trace else None))
    return program.run(
        lambda progress: run_seeds(
            options.seed, options.runs, failures_max=options.failures, jobs=options.jobs, progress=progress
        ),
        {},
        is_json=options.json,
    )


def _show(now: int, node: SimNode, event: Event, effects: list[Effect]) -> None:
    say(f"{now:6d} {node.node}  {event_text(event)}")
    for effect in effects:
        say(f"           {effect_text(effect)}")


if __name__ == "__main__":
    sys.exit(main())
