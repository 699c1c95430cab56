"""Command line of the simulator of primary-backup partitions: runs seeds of each fault mix, or one scenario."""

from __future__ import annotations

import sys
from functools import partial

from tidelog.sim.isr.describe import state_text
from tidelog.sim.isr.parts import SHIPPED, Parts
from tidelog.sim.isr.repairing import Repairing
from tidelog.sim.isr.run import run_scenario, run_seeds, shrink
from tidelog.sim.isr.scenario import MIXES, Step, draw_scenario
from tidelog.sim.kit.program import Program, options_of, say, scenario_of

COMMAND = "python -m tidelog.sim.isr"


def main(parts: Parts = SHIPPED) -> int:
    """Runs the command. Returns the exit status."""
    parser = options_of(COMMAND, "Simulate primary-backup partitions, each run from one number.")
    parser.add_argument("--mix", choices=[*MIXES, "all"], default="all", help="the faults (default %(default)s)")
    options = parser.parse_args()
    mixes = [*MIXES] if options.mix == "all" else [options.mix]
    program = Program(COMMAND, "batches committed", partial(shrink, parts=parts))
    if options.scenario is not None or options.trace:
        scenario = scenario_of(options, draw_scenario(mixes[0], options.seed))
        return program.tell(run_scenario(scenario, parts, _show if options.trace else None))
    run = partial(
        run_seeds, first=options.seed, count=options.runs, parts=parts, failures_max=options.failures, jobs=options.jobs
    )

    def run_mix(mix: str) -> int:
        return program.run(lambda progress: run(mix, progress=progress), {"mix": mix}, is_json=options.json)

    return max([run_mix(mix) for mix in mixes])


def _show(number: int, step: Step, world: Repairing) -> None:
    say(f"{number:4d} {step.action:16} {state_text(world)}")


if __name__ == "__main__":
    sys.exit(main())
