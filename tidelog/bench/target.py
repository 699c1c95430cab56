"""What is measured: a broker that runs already, or a fresh one; a topic of the run's own; the broker's own counts.

CPU time comes from the broker's `process_cpu_seconds_total` if it shows one, else, for a broker started here, from
`/proc`. What neither tells is left out of the figures.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from yarl import URL

from tidelog.admin import AdminClient
from tidelog.testing import LocalCluster
from tidelog.transport.addresses import parse_bootstrap
from tidelog.transport.connections import Connections

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Reading:
    """Counts at one moment. CPU is None where it cannot be known."""

    moment_s: float
    client_cpu_s: float
    broker_cpu_s: float | None
    fsyncs: float
    fsync_bytes: float


@dataclass(frozen=True, slots=True)
class Target:
    """Brokers and a topic on them. `pids` are known of brokers that were started here."""

    bootstrap: str
    topic: str
    pids: tuple[int, ...] = ()

    async def read(self) -> Reading:
        """Reads all counts now, of all brokers together."""
        counts = await _metrics(self.bootstrap)
        cpu_s = counts.get("process_cpu_seconds_total")
        if cpu_s is None and self.pids:
            cpu_s = sum(map(_cpu_s, self.pids))
        return Reading(
            time.perf_counter(),
            time.process_time(),
            cpu_s,
            counts.get("tidelog_fsyncs_total", 0.0),
            counts.get("tidelog_fsync_bytes_total", 0.0),
        )


@asynccontextmanager
async def open_target(
    bootstrap: str | None, topic: str | None, partitions: int, brokers: int = 1
) -> AsyncIterator[Target]:
    """The brokers at `bootstrap`, or some that live as long as this; `topic`, or one that is deleted afterwards."""
    if bootstrap is None:
        async with LocalCluster(brokers) as cluster, _topic(cluster.bootstrap, topic, partitions) as name:
            yield Target(cluster.bootstrap, name, tuple(cluster.broker(node_id).pid for node_id in cluster.node_ids))
    else:
        async with _topic(bootstrap, topic, partitions) as name:
            yield Target(bootstrap, name)


@asynccontextmanager
async def _topic(bootstrap: str, topic: str | None, partitions: int) -> AsyncIterator[str]:
    async with AdminClient(bootstrap) as admin:
        if topic is not None and topic in await admin.list_topics():
            yield topic
            return
        name = f"bench-{time.time_ns():x}" if topic is None else topic
        await admin.create_topic(name, partitions=partitions)
        try:
            yield name
        finally:
            if topic is None:
                await admin.delete_topic(name)


def costs(before: Reading, after: Reading, value_bytes: int) -> dict[str, float]:
    """What the run cost between two readings: fsyncs, and CPU seconds per gigabyte (10^9) of values."""
    seconds = after.moment_s - before.moment_s
    fsyncs = after.fsyncs - before.fsyncs
    figures = {"fsyncs_per_s": fsyncs / seconds}
    if fsyncs:
        figures["bytes_per_fsync"] = (after.fsync_bytes - before.fsync_bytes) / fsyncs
    gigabytes = value_bytes / 1e9
    if gigabytes:
        figures["client_cpu_s_per_gb"] = (after.client_cpu_s - before.client_cpu_s) / gigabytes
        if before.broker_cpu_s is not None and after.broker_cpu_s is not None:
            figures["broker_cpu_s_per_gb"] = (after.broker_cpu_s - before.broker_cpu_s) / gigabytes
    return figures


async def _metrics(bootstrap: str) -> dict[str, float]:
    """The counters without labels, summed over the brokers that are named."""
    total: Counter[str] = Counter()
    connections = Connections(connections_max=1)
    await connections.open()
    try:
        for address in parse_bootstrap(bootstrap):
            answer = await connections.request("GET", URL(f"{address}/metrics"), timeout_s=30)
            if answer.error is not None:
                raise answer.error
            lines = (line.split() for line in answer.body.decode().splitlines() if not line.startswith("#"))
            total.update({name: float(value) for name, value, *_ in lines if "{" not in name})
    finally:
        await connections.close()
    return dict(total)


def _cpu_s(pid: int) -> float:
    """User and system time of a process (proc(5), fields 14 and 15)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS
