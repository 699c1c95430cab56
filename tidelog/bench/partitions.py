"""Benchmark workload `partitions`: the costs of many partitions, on brokers started for it, with up to three replicas
each.

It has three parts, each with brokers of its own, and each can be left out:

- `many_partitions.py`: many partitions are created while a client writes to another topic, then written to, one record
  each, and read again after all brokers were killed;
- `spread.py`: one producer writes round robin to many partitions;
- `growth.py`: records are written one at a time to one partition, while the cluster gets more and more of others.
"""

from __future__ import annotations

from dataclasses import asdict

from tidelog.bench import growth, many_partitions, spread
from tidelog.bench.partition_options import PartitionsOptions, Steps
from tidelog.bench.result import Progress, Result

PARTS = (
    (many_partitions.steps_of, many_partitions.measure_many),
    (spread.steps_of, spread.measure_spread),
    (growth.steps_of, growth.measure_growth),
)


async def measure_partitions(options: PartitionsOptions, progress: Progress) -> Result:
    """Runs the parts that the options ask for, one after the other."""
    steps = Steps(progress, sum(steps_of(options) for steps_of, _ in PARTS))
    figures: dict[str, float] = {}
    for steps_of, measure in PARTS:
        if steps_of(options):
            figures |= await measure(options, steps)
    return Result("partitions", asdict(options), figures)
