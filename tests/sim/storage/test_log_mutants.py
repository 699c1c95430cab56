"""Planted bugs in one log: each breaks one rule, and the simulator has to notice."""

from __future__ import annotations

from contextlib import AbstractContextManager

import pytest

from tidelog.sim.kit.patching import patched
from tidelog.sim.storage import log_scenario
from tidelog.storage.scan import BadEnd, Scan

SEEDS = 100
"""The median of five starts is 2."""


def truncate_a_bad_tail() -> AbstractContextManager[None]:
    """Takes a batch that does not verify, and of which no mark says that it was durable, for torn, in every log."""
    run = Scan.run

    def run_alone(scan: Scan, *where: object) -> object:
        scan.bad_end = BadEnd.TRUNCATE
        return run(scan, *where)  # type: ignore[arg-type]  # as it was called

    return patched(Scan, "run", run_alone)


def test_the_simulator_notices_that_a_bad_tail_is_truncated() -> None:
    with truncate_a_bad_tail(), pytest.raises(AssertionError, match="was truncated"):
        for seed in range(SEEDS):
            log_scenario.run_seed(seed)
