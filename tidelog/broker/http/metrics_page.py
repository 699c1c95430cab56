"""The page of `/metrics`. The metrics of the partitions that a broker leads are written as text here, in slices,
between which the event loop serves other requests.

There may be ten thousand partitions, with six samples each. The Prometheus client library makes an object of every
sample, all in one go: that blocked the event loop for a third of a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest

from tidelog.broker.face.face import BrokerFace
from tidelog.model.steps import Steps

SLICE_PARTITIONS: Final = 250
"""Partitions whose metrics are written before other requests have their turn: some 3 ms of work."""
SLICE_LINES: Final = 2_000
"""Lines joined before other requests have their turn. A page with no more lines is joined without a pause, since each
pause would wait behind up to eight readers.
"""
SAMPLES: Final = {
    "tidelog_partition_log_start_offset": "The first offset that can be read.",
    "tidelog_partition_high_watermark": "The end of what is committed.",
    "tidelog_partition_log_end_offset": "The next offset to be written.",
    "tidelog_partition_leader_epoch": "The number of the present leadership.",
    "tidelog_partition_in_sync_replicas": "The size of the ISR.",
    "tidelog_replica_lag_records": "Records that a follower does not have yet.",
}
COUNTS: Final = {
    "tidelog_under_replicated_partitions": "Partitions led here that have fewer replicas in sync than replicas.",
    "tidelog_under_min_isr_partitions": (
        "Partitions led here that refuse acks=all: too few replicas are in sync, or no majority answers."
    ),
}


class MetricsPage:
    """The page of one listener. Concurrent requests share one page, so that it is in memory once."""

    def __init__(self, registry: CollectorRegistry, face: BrokerFace) -> None:
        self.registry = registry
        self._face = face
        self._under_way: asyncio.Task[bytes] | None = None

    async def text(self) -> bytes:
        """Returns all metrics in Prometheus' text format."""
        if self._under_way is None:
            self._under_way = asyncio.create_task(self._make())
            self._under_way.add_done_callback(self._made)
        return await asyncio.shield(self._under_way)

    def _made(self, _: asyncio.Task[bytes]) -> None:
        self._under_way = None

    async def _make(self) -> bytes:
        families = generate_latest(self.registry)
        if not self._face.readiness.is_ready:
            return families
        return families + await self._face.work.finish(partition_text(self._face))


def partition_text(face: BrokerFace) -> Steps[bytes]:
    """Returns the metrics of the partitions that a broker leads in Prometheus' text format, written in slices, between
    which other requests are served. The sum over all brokers counts each partition once.
    """
    families = {name: [_head(name, meaning)] for name, meaning in SAMPLES.items()}
    counts = dict.fromkeys(COUNTS, 0)
    led = [*face.statistics.led.values()]
    for start in range(0, len(led), SLICE_PARTITIONS):
        if start:
            yield None
        for partition in led[start : start + SLICE_PARTITIONS]:
            at = f'partition="{partition.partition}"', f'topic="{partition.topic}"'
            values = (
                partition.log_start_offset,
                partition.high_watermark,
                partition.log_end_offset,
                partition.leader_epoch,
                len(partition.in_sync),
            )
            labels = ",".join(at)
            for name, value in zip(SAMPLES, values, strict=False):  # the last family has a line for each follower
                families[name].append(f"{name}{{{labels}}} {value}.0\n")
            for node_id, behind in partition.replica_lags.items():
                lags = families["tidelog_replica_lag_records"]
                lags.append(f'tidelog_replica_lag_records{{{at[0]},replica="{node_id}",{at[1]}}} {behind}.0\n')
            counts["tidelog_under_replicated_partitions"] += len(partition.in_sync) <= len(partition.replica_lags)
            counts["tidelog_under_min_isr_partitions"] += not partition.is_writable
    return (yield from _joined(families, counts))


def _joined(families: Mapping[str, list[str]], counts: Mapping[str, int]) -> Steps[bytes]:
    parts: list[bytes] = []
    joined = 0
    for lines in families.values():
        joined += len(lines)
        if joined > SLICE_LINES:
            yield None
            joined = len(lines)
        parts.append("".join(lines).encode())
    for name, count in counts.items():
        parts.append(f"{_head(name, COUNTS[name])}{name} {count}.0\n".encode())
    return b"".join(parts)


def _head(name: str, meaning: str) -> str:
    return f"# HELP {name} {meaning}\n# TYPE {name} gauge\n"
