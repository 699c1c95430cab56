"""What a batch of runs came to, as lines for whoever asked for it."""

from __future__ import annotations

import sys
from collections.abc import Callable

from tidelog.sim.kit.batches import Batch, R


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


def report(batch: Batch[R], seconds: float, *, label: str, amounts: str, explain: Callable[[R], None]) -> None:
    """Says what happened how often and what failed; `amounts` names what the batch's amount is of."""
    for name in batch.sometimes:
        say(f"{batch.counters[name]:10d}  {name}")
    rate = batch.runs / seconds if seconds else 0.0
    say(f"{label}{batch.runs} runs, {batch.amount} {amounts}, {len(batch.failures)} failures, {rate:.0f} runs/s")
    for outcome in batch.failures:
        explain(outcome)
    for name in batch.never_happened:
        say(f"never happened, the runs have become too tame: {name}")
