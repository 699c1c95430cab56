"""Batches: how many megabytes a second two commit protocols take, and what that costs, by the size of the producer's
batches.

The figures are those of `tidelog bench produce`, of topics with three replicas, each batch on disk before it is
acknowledged. Topics of both protocols take turns on the same brokers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from tidelog.admin import AdminClient
from tidelog.bench.produce import ProduceOptions, produce_to
from tidelog.bench.secured import Level, secured_cluster
from tidelog.bench.target import Target
from tidelog.model.cluster import PROTOCOLS

BROKERS: Final = 3
SIZES: Final = tuple(size * 1024 for size in (4, 16, 64, 256, 1024))
ROUNDS: Final = 9
VALUE_BYTES: Final = 1000
RECORDS: Final = 32_000
RATE: Final = "mb_per_s"
PROCESSOR: Final = "broker_cpu_s_per_gb"

Runs = Mapping[int, list[Mapping[str, float]]]
"""The figures of each run, by the size of batches."""


async def measure() -> dict[str, Runs]:
    """Returns the runs of each protocol, on a cluster of its own."""
    runs: dict[str, defaultdict[int, list[Mapping[str, float]]]] = {name: defaultdict(list) for name in PROTOCOLS}
    async with secured_cluster(Level.PLAIN, BROKERS, kafka=True) as (cluster, to), AdminClient(**to) as admin:
        pids = tuple(cluster.broker(node_id).pid for node_id in cluster.node_ids)
        for number in range(ROUNDS):
            for size in SIZES:
                for name in PROTOCOLS:
                    topic = f"{name}-{size}-{number}"
                    await admin.create_topic(topic, replication_factor=BROKERS, configs={"commit.protocol": name})
                    result = await produce_to(Target(to, topic, pids), _options(size))
                    await admin.delete_topic(topic)
                    runs[name][size].append(result.figures)
    return {**runs}


def _options(size: int) -> ProduceOptions:
    """Returns a run of some seconds."""
    return ProduceOptions(batch_bytes=size, value_bytes=VALUE_BYTES, records=RECORDS, at_once=100)
