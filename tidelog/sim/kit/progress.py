"""Progress of a batch of runs, printed while it runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from tidelog.sim.kit.batches import Batch

QUIET_RUNS = 2_000


class ProgressBar:
    """Progress output: on a terminal a bar that grows, in a file a line for each percent; nothing for short batches."""

    def __init__(self, label: str, now_s: Callable[[], float]) -> None:
        self._label = label
        self._now_s = now_s
        self._begin_s = now_s()
        self._percent = 0

    @property
    def seconds(self) -> float:
        """Seconds since the bar was made."""
        return self._now_s() - self._begin_s

    def show(self, batch: Batch[Any], runs: int) -> None:
        """Writes to the standard error stream, if the share of the `runs` done has risen by a percent."""
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
