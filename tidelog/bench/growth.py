"""Part `growth` of the benchmark workload `partitions`: acknowledgement times of one partition in a growing cluster.

Records are written one at a time to one partition while the cluster gets more and more partitions that are never
written to. At each size the time of an acknowledgement is reported, and the CPU time of all brokers per record, which
is the figure to compare on a machine with other users.
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Final

from tidelog.bench.costs import cpu_s_of
from tidelog.bench.many_partitions import until_open
from tidelog.bench.partition_options import PartitionsOptions, Steps, admin_of, cluster_for, counts_of, create, pieces
from tidelog.bench.payload import make_values
from tidelog.bench.result import percentiles_ms
from tidelog.bench.secured import Connection
from tidelog.producer import Producer
from tidelog.testing import LocalCluster

MEASURED: Final = "measured"
WARM_UP_RECORDS: Final = 100


def steps_of(options: PartitionsOptions) -> int:
    """Returns the number of progress steps of `measure_growth`, one part of the workload `partitions`; 0 if the options
    leave it out."""
    return len(counts_of(options.latency_at))


async def measure_growth(options: PartitionsOptions, steps: Steps) -> dict[str, float]:
    """Measures the time of an acknowledgement while the cluster gets more partitions (a part of the workload
    `partitions`), on brokers started for it. Returns the figures by name."""
    counts, figures = counts_of(options.latency_at), dict[str, float]()
    async with cluster_for(options, counts[-1]) as (cluster, to), admin_of(to) as admin:
        await create(admin, options, MEASURED, 1)
        for there, total in pairwise([1, *counts]):
            topics = dict(pieces(f"to-{total}", total - there, options.topic_partitions))
            for topic, count in topics.items():
                await create(admin, options, topic, count)
            await until_open(admin, topics)
            figures |= await _at(cluster, to, options, f"at_{total}")
            steps.did_one()
    p50 = [figures[f"at_{count}_ack_p50_ms"] for count in counts]
    return figures | {"ack_p50_last_to_first": p50[-1] / p50[0]}


async def _at(cluster: LocalCluster, to: Connection, options: PartitionsOptions, name: str) -> dict[str, float]:
    async with Producer(**to) as producer:
        await _write(producer, options, WARM_UP_RECORDS)
        before_s = cpu_s_of(cluster)
        seconds = await _write(producer, options, options.latency_records)
        cpu_s = cpu_s_of(cluster) - before_s
    return {
        **percentiles_ms(seconds, f"{name}_ack_"),
        f"{name}_brokers_cpu_ms_per_record": 1000 * cpu_s / options.latency_records,
    }


async def _write(producer: Producer, options: PartitionsOptions, records: int) -> list[float]:
    """Writes records one after the other; returns the seconds that each took."""
    values, seconds = make_values("random", options.value_bytes), []
    for number in range(records):
        begin_s = time.perf_counter()
        await producer.send_and_wait(MEASURED, values[number % len(values)], partition=0)
        seconds.append(time.perf_counter() - begin_s)
    return seconds
