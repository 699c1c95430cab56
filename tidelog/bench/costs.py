"""Costs of a benchmark run: CPU time, fsyncs and messages between brokers, as differences of counters before and after.

CPU time is the figure to compare on a machine with other users, since it hardly depends on how busy the machine is.
User time is mostly Python, system time mostly copying and writing. It is reported for each process, and per megabyte of
values for all brokers together, regardless of the number of replicas.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tidelog.testing import LocalCluster

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
APPENDED = "tidelog_appended_batches_total"
FSYNCS = "tidelog_fsyncs_total"
FSYNC_BYTES = "tidelog_fsync_bytes_total"
FETCHES = "tidelog_replica_fetches_total"
REPORTS = "tidelog_replica_reports_total"
FRAMES = "tidelog_paxos_frames_total"


class Cpu(NamedTuple):
    """CPU time in seconds that a process has used, in user and in system mode."""

    user_s: float
    system_s: float

    @property
    def total_s(self) -> float:
        return self.user_s + self.system_s

    def since(self, before: Cpu) -> Cpu:
        """Returns the CPU time spent since an earlier reading."""
        return Cpu(self.user_s - before.user_s, self.system_s - before.system_s)


@dataclass(frozen=True, slots=True)
class Reading:
    """Counters and CPU times at one moment, of all brokers together. `brokers` is empty if their processes are not
    known."""

    moment_s: float
    client: Cpu
    brokers: tuple[Cpu, ...]
    counters: Mapping[str, float]

    def count(self, name: str) -> float:
        return self.counters.get(name, 0.0)

    @property
    def broker_cpu_s(self) -> float | None:
        """CPU seconds of all brokers together; None if not known."""
        if self.brokers:
            return sum(cpu.total_s for cpu in self.brokers)
        return self.counters.get("process_cpu_seconds_total")


def costs(before: Reading, after: Reading, value_bytes: int) -> dict[str, float]:
    """Returns the costs of the run between two readings, per gigabyte (10^9 bytes) and megabyte (10^6 bytes) of values.
    Unknown costs are left out."""
    figures = _work(before, after)
    gigabytes = value_bytes / 1e9
    if gigabytes:
        figures["client_cpu_s_per_gb"] = after.client.since(before.client).total_s / gigabytes
        if before.broker_cpu_s is not None and after.broker_cpu_s is not None:
            figures["broker_cpu_s_per_gb"] = (after.broker_cpu_s - before.broker_cpu_s) / gigabytes
    return figures | _cpu(before, after, value_bytes / 1e6)


def _work(before: Reading, after: Reading) -> dict[str, float]:
    """Returns the fsyncs, and the messages between brokers: a fetch and its answer count as two, a follower's report
    and a frame of a Paxos partition as one each. Empty if the brokers do not report these counters."""
    if FSYNCS not in after.counters:
        return {}

    def counted(name: str) -> float:
        return after.count(name) - before.count(name)

    fsyncs, batches = counted(FSYNCS), counted(APPENDED)
    figures = {"fsyncs_per_s": fsyncs / (after.moment_s - before.moment_s)}
    if fsyncs:
        figures["bytes_per_fsync"] = counted(FSYNC_BYTES) / fsyncs
    if batches:
        figures["fsyncs_per_batch"] = fsyncs / batches
    messages = 2 * counted(FETCHES) + counted(REPORTS) + counted(FRAMES)
    if batches and messages:
        figures["messages_per_batch"] = messages / batches
    return figures


def _cpu(before: Reading, after: Reading, megabytes: float) -> dict[str, float]:
    spent = [now.since(then) for then, now in zip(before.brokers, after.brokers, strict=True)]
    if not spent:
        return {}
    figures = {}
    if megabytes:
        figures["brokers_user_ms_per_mb"] = 1000 * sum(cpu.user_s for cpu in spent) / megabytes
        figures["brokers_system_ms_per_mb"] = 1000 * sum(cpu.system_s for cpu in spent) / megabytes
    client = after.client.since(before.client)
    for name, cpu in [("client", client), *((f"broker_{number}", cpu) for number, cpu in enumerate(spent, 1))]:
        figures[f"{name}_user_s"], figures[f"{name}_system_s"] = cpu
    return figures


def own_cpu() -> Cpu:
    """Returns the CPU time of the calling process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return Cpu(used.ru_utime, used.ru_stime)


def cpu_of(pid: int) -> Cpu:
    """Returns the CPU time of another process (proc(5), fields 14 and 15)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return Cpu(int(fields[11]) / CLOCK_TICKS, int(fields[12]) / CLOCK_TICKS)


def cpu_s_of(cluster: LocalCluster) -> float:
    """Returns the CPU seconds of all brokers of a cluster together."""
    return sum(cpu_of(cluster.broker(node_id).pid).total_s for node_id in cluster.node_ids)


def resident_bytes_of(cluster: LocalCluster) -> int:
    """Returns the resident memory of all brokers of a cluster together."""
    return sum(resident_bytes(cluster.broker(node_id).pid) for node_id in cluster.node_ids)


def resident_bytes(pid: int) -> int:
    """Returns the resident memory of a process (proc(5), `VmRSS`)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
