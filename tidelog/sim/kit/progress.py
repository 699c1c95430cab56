"""How far a batch of runs is, for whoever waits for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from tidelog.sim.kit.batches import Batch

QUIET_RUNS = 2_000


class ProgressBar:
    """On a terminal a bar that grows; in a file a line for each percent. Nothing for what is over at once."""

    def __init__(self, label: str, now_s: Callable[[], float]) -> None:
        self._label = label
        self._now_s = now_s
        self._begin_s = now_s()
        self._percent = 0

    @property
    def seconds(self) -> float:
        """Since it was made."""
        return self._now_s() - self._begin_s

    def show(self, batch: Batch[Any], runs: int) -> None:
        """Writes to the standard error stream, if there is another percent to tell of `runs`."""
        percent = 100 * batch.runs // runs
        if percent == self._percent or runs < QUIET_RUNS:
            return
        self._percent = percent
        failed = "".join(f", seed {outcome.seed} failed" for outcome in batch.failures)
        left_s = self.seconds * (runs - batch.runs) / batch.runs
        line = f"{self._label}{percent:3d}% {'#' * (percent // 5):20} {batch.runs} runs, {left_s:.0f} s left{failed}"
        sys.stderr.write(f"\r{line}" if sys.stderr.isatty() else f"{line}\n")
        sys.stderr.write("\n" if sys.stderr.isatty() and batch.runs == runs else "")
        sys.stderr.flush()
