"""Workload `partitions`: what many partitions cost, on brokers that are started for it, up to three replicas each.

It has three parts, each on brokers of its own, and each can be left out:

- `many_partitions.py`: so many partitions are made while a client writes to another topic, are written to, one record
  each, and read again after all brokers were killed;
- `spread.py`: one producer writes round robin to many partitions;
- `growth.py`: one record at a time goes to one partition, while the cluster has ever more of others.
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
    """Runs the parts that are wanted, one after the other."""
    steps = Steps(progress, sum(steps_of(options) for steps_of, _ in PARTS))
    figures: dict[str, float] = {}
    for steps_of, measure in PARTS:
        if steps_of(options):
            figures |= await measure(options, steps)
    return Result("partitions", asdict(options), figures)
