"""Benchmark workload `repair`: many batches of one partition are damaged on its leader's disk while records are
written.

The partition is filled first, on three brokers. Then a byte is changed in batches spread over the whole log, in the
leader's files, while the broker runs. A verification of the partition finds them, and the broker repairs them with the
other replicas' copies. Measured are the time of the repair, and the acknowledgement times before and meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import struct
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tidelog.admin import AdminClient
from tidelog.admin.verification import PartitionVerifier
from tidelog.bench.pause import Done, write_steadily
from tidelog.bench.payload import make_values
from tidelog.bench.result import Progress, Result, ignore, percentiles_ms
from tidelog.bench.secured import Connection, Level, at, secured_cluster
from tidelog.bench.target import read_counters
from tidelog.producer import Delivery, Producer
from tidelog.testing import LocalCluster

TOPIC: Final = "repair"
LEADER: Final = 1
BROKERS: Final = (1, 2, 3)
SETTINGS: Final = {"log.scrub.period.ms": str(86_400_000)}
"""Settings that keep the background scrubber from repairing before the verification does."""
FILL_VALUE_BYTES: Final = 1000
FILL_BATCH_BYTES: Final = 16_384
LOOK_S: Final = 0.05
REPAIR_S_MAX: Final = 600.0
HEAD: Final = struct.Struct(">qi")
"""The first two fields of a batch: base offset, and the number of bytes that follow."""
REPAIRED: Final = "tidelog_repaired_batches_total"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairOptions:
    """Options of the workload `repair`: `data_mb` megabytes are written first; then `damaged` batches are damaged."""

    data_mb: int = 1000
    damaged: int = 1000
    calm_s: float = 10.0
    value_bytes: int = 100
    protocol: str = "isr"
    security: Level = Level.PLAIN


async def measure_repair(options: RepairOptions, progress: Progress = ignore) -> Result:
    """Runs the workload `repair` on a cluster started for it. Raises `ValueError` if there are fewer batches than are
    to be damaged."""
    acknowledged, over = Done(), asyncio.Event()
    started = secured_cluster(options.security, len(BROKERS), settings=SETTINGS)
    async with started as (cluster, to), AdminClient(**to) as admin:
        configs = {"commit.protocol": options.protocol}
        await admin.create_topic(TOPIC, replicas_assignments={0: BROKERS}, configs=configs)
        await _fill(to, options)
        async with asyncio.TaskGroup() as tasks:
            load = write_steadily(to, TOPIC, options.value_bytes, {0: acknowledged}, over)
            tasks.create_task(load)
            try:
                figures = await _measured(
                    cluster, at(to, cluster.broker(LEADER).url), admin, options, acknowledged, progress
                )
            finally:
                over.set()
    return Result("repair", asdict(options), figures)


async def _measured(
    cluster: LocalCluster,
    leader: Connection,
    admin: AdminClient,
    options: RepairOptions,
    acknowledged: Done,
    progress: Progress,
) -> dict[str, float]:
    begin_s = time.monotonic()
    await asyncio.sleep(options.calm_s)
    batches, size = await asyncio.to_thread(rot, _log(cluster), options.damaged)
    before = (await read_counters(**leader))[REPAIRED]
    damaged_s = time.monotonic()
    verifier = PartitionVerifier(admin.verify_replica, TOPIC, 0, BROKERS, lambda _: None)
    verifying = asyncio.create_task(verifier.verify())
    repaired = 0
    async with asyncio.timeout(REPAIR_S_MAX):
        while repaired < options.damaged:
            await asyncio.sleep(LOOK_S)
            repaired = int((await read_counters(**leader))[REPAIRED] - before)
            progress(min(repaired, options.damaged), options.damaged)
    repaired_s = time.monotonic()
    await verifying
    again = await PartitionVerifier(admin.verify_replica, TOPIC, 0, BROKERS, lambda _: None).verify()
    return {
        "log_mb": size / 1e6,
        "batches": batches,
        "repaired": repaired,
        "repair_s": repaired_s - damaged_s,
        "replicas_whole": sum(replica.is_whole for replica in again.replicas),
        **percentiles_ms(acknowledged.seconds((begin_s, damaged_s)), "calm_ack_"),
        **percentiles_ms(acknowledged.seconds((damaged_s, repaired_s)), "repair_ack_"),
    }


async def _fill(to: Connection, options: RepairOptions) -> None:
    values = make_values("random", FILL_VALUE_BYTES)
    async with Producer(**to, batch_size=FILL_BATCH_BYTES) as producer:
        delivery: Delivery | None = None
        for number in range(options.data_mb * 1_000_000 // FILL_VALUE_BYTES):
            delivery = await producer.send(TOPIC, values[number % len(values)])
        if delivery is not None:
            await delivery


def _log(cluster: LocalCluster) -> list[Path]:
    return sorted(cluster.broker(LEADER).data_dir.glob("topics/*/0/*.log"))


def rot(paths: list[Path], count: int) -> tuple[int, int]:
    """Changes a byte in `count` of the batches in these files, evenly spread; returns the number of batches in the
    files and their bytes. Blocking. Raises `ValueError` if there are fewer batches."""
    batches = [(path, end) for path in paths for end in _ends(path)]
    if len(batches) < count:
        raise ValueError(f"only {len(batches)} batches are there, and {count} are to be damaged; write more before")
    for number in range(count):
        path, end = batches[number * len(batches) // count]
        fd = os.open(path, os.O_RDWR)
        try:
            (byte,) = os.pread(fd, 1, end - 1)
            os.pwrite(fd, bytes([byte ^ 0x10]), end - 1)
        finally:
            os.close(fd)
    return len(batches), sum(path.stat().st_size for path in paths)


def _ends(path: Path) -> Iterator[int]:
    """Yields the end position of each batch in a segment file."""
    position, size = 0, path.stat().st_size
    with path.open("rb") as file:
        while position + HEAD.size <= size:
            file.seek(position)
            _, following = HEAD.unpack(file.read(HEAD.size))
            position += HEAD.size + following
            if following <= 0 or position > size:
                return
            yield position
