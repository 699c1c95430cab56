"""Every workload, small, against a running broker: it ends, counts right, and cleans up."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.admin import AdminClient
from tidelog.bench.consume import ConsumeOptions, measure_consume
from tidelog.bench.latency import LatencyOptions, measure_latency
from tidelog.bench.produce import ProduceOptions, measure_produce
from tidelog.bench.raw import RawOptions, measure_raw
from tidelog.bench.result import Workload, ignore
from tidelog.testing import LocalCluster

pytestmark = pytest.mark.process

RUNS: list[tuple[Workload[Any], type[Any], dict[str, Any], set[str]]] = [
    (measure_produce, ProduceOptions, {"records": 3000, "partitions": 2}, {"ack_p99_ms", "bytes_per_fsync"}),
    (
        measure_produce,
        ProduceOptions,
        {"records": 3000, "at_once": 700, "values": "json", "compression": "zstd"},
        set(),
    ),
    (measure_consume, ConsumeOptions, {"records": 3000, "partitions": 2}, {"broker_cpu_s_per_gb"}),
    (measure_consume, ConsumeOptions, {"records": 3000, "batches": True}, {"broker_cpu_s_per_gb"}),
    (measure_latency, LatencyOptions, {"records": 30, "tasks": 4}, {"ack_p50_ms", "delivery_p999_ms"}),
    (measure_raw, RawOptions, {"requests": 7, "batches": 2, "in_flight": 3}, {"requests_per_s", "p50_ms"}),
]


@pytest.mark.parametrize(("workload", "options", "parameters", "figures"), RUNS)
async def test_workloads(
    cluster: LocalCluster,
    admin: AdminClient,
    workload: Workload[Any],
    options: type[Any],
    parameters: dict[str, Any],
    figures: set[str],
) -> None:
    before = await admin.list_topics()
    progress: list[tuple[int, int]] = []
    chosen = options(bootstrap=cluster.bootstrap, **parameters)
    result = await workload(chosen, lambda done, total: progress.append((done, total)))
    assert figures | {"records_per_s", "mb_per_s", "duration_s"} <= result.figures.keys()
    assert min(result.figures.values()) >= 0
    done, total = progress[-1]
    assert total - done < 100
    assert sorted(progress) == progress
    assert await admin.list_topics() == before


async def test_a_topic_of_ones_own_is_used_and_kept(cluster: LocalCluster, admin: AdminClient, topic: str) -> None:
    options = ProduceOptions(bootstrap=cluster.bootstrap, topic=topic, records=2000)
    await measure_produce(options, ignore)
    result = await measure_consume(ConsumeOptions(bootstrap=cluster.bootstrap, topic=topic, records=2000), ignore)
    assert result.parameters["topic"] == topic
    assert topic in await admin.list_topics()
