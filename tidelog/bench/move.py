"""Benchmark workload `move`: a broker joins a cluster under load, and gets its share of the replicas at a throttled
rate.

The topic and the brokers are made for the run. A fixed amount of data is written first, then single records at a steady
pace, each acknowledged by all in-sync replicas or by a majority (`protocol`), before the move, during it, and after it.
Measured are

- how many replicas were reassigned, and the least number that could even out the load;
- the rate at which the new broker received them, over the whole move and in windows of it, next to the throttle;
- the acknowledgement times before, during and after the move;
- whether every acknowledged record is read back, once, at its offset.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import NamedTuple

from tidelog.admin import AdminClient, TopicDescription
from tidelog.bench.payload import make_values
from tidelog.bench.result import Progress, Result, percentiles_ms
from tidelog.bench.secured import Connection, Level, at, secured_cluster
from tidelog.bench.target import read_counters
from tidelog.consumer import Consumer
from tidelog.model.ids import TopicPartition
from tidelog.producer import Delivery, Producer
from tidelog.testing import LocalCluster

TOPIC = "move"
REPLICAS = 3
RECEIVED = "tidelog_moves_received_bytes_total"
LOAD_BYTES = 100
"""Bytes of a record of the steady load."""
SEND_EVERY_S = 0.01
SAMPLE_EVERY_S = 0.5
WINDOW_S = 5.0
MOVED_S_MAX = 600.0
READ_S_MAX = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveOptions:
    """Options of the workload `move`. `data_mb` (10^6 bytes) are written first, in records of `value_bytes`, at least
    20 each. A throttle of 0 means none. The load runs for `calm_s` seconds before the move, and again after it."""

    brokers: int = 5
    partitions: int = 60
    protocol: str = "isr"
    data_mb: int = 180
    value_bytes: int = 1000
    throttle_mb_per_s: float = 2.0
    calm_s: float = 10.0
    security: Level = Level.PLAIN


class Sample(NamedTuple):
    """Bytes that the new broker had received at one moment."""

    moment_s: float
    received_bytes: float


@dataclass(slots=True)
class _Written:
    """The acknowledged records, as a mapping from offset to record number for each partition, and the latencies of the
    load."""

    numbers: list[dict[int, int]]
    latencies: list[tuple[float, float]] = field(default_factory=list)
    """(time of sending, seconds until the acknowledgement) of each record of the load."""

    def between(self, begin_s: float, end_s: float) -> list[float]:
        """Returns the latencies in seconds of the records that were sent from `begin_s` to `end_s`."""
        return [seconds for sent_s, seconds in self.latencies if begin_s <= sent_s < end_s]


async def measure_move(options: MoveOptions, progress: Progress) -> Result:
    """Runs the workload `move` on a cluster started for it."""
    written = _Written([{} for _ in range(options.partitions)])
    over = asyncio.Event()
    async with secured_cluster(options.security, options.brokers) as (cluster, to), AdminClient(**to) as admin:
        factor = min(REPLICAS, options.brokers)
        configs = {"commit.protocol": options.protocol}
        await admin.create_topic(TOPIC, partitions=options.partitions, replication_factor=factor, configs=configs)
        await _fill(to, options, written)
        async with asyncio.TaskGroup() as tasks:
            loading = tasks.create_task(_load(to, written, over))
            try:
                figures = await _measured(cluster, to, admin, options, written, progress)
            finally:
                over.set()
            await loading
        figures |= await _verified(to, written)
    return Result("move", asdict(options), figures)


async def _measured(
    cluster: LocalCluster,
    to: Connection,
    admin: AdminClient,
    options: MoveOptions,
    written: _Written,
    progress: Progress,
) -> dict[str, float]:
    """Runs the phases before, during and after the move; returns their figures."""
    calm_s = time.monotonic()
    await asyncio.sleep(options.calm_s)
    joining_s = time.monotonic()
    await asyncio.to_thread(cluster.add)
    before = await admin.describe_topic(TOPIC)
    begin_s = time.monotonic()
    await admin.rebalance(throttle_bytes_per_s=int(options.throttle_mb_per_s * 1e6))
    samples = await _watch(at(to, cluster.broker(cluster.node_ids[-1]).url), admin, progress)
    end_s = time.monotonic()
    await admin.elect_preferred_leaders()
    await asyncio.sleep(options.calm_s)
    after = await admin.describe_topic(TOPIC)
    replicas = sum(len(partition.replicas) for partition in before.partitions)
    return {
        "replicas_reassigned": reassigned(before, after),
        "replicas_reassigned_least": replicas // (options.brokers + 1),
        "move_s": end_s - begin_s,
        **rates_of(samples),
        **percentiles_ms(written.between(calm_s, joining_s), "ack_before_"),
        **percentiles_ms(written.between(begin_s, end_s), "ack_during_"),
        **percentiles_ms(written.between(end_s, time.monotonic()), "ack_after_"),
    }


def reassigned(before: TopicDescription, after: TopicDescription) -> int:
    """Returns the number of replicas that `after` has on brokers without one in `before`."""
    pairs = zip(before.partitions, after.partitions, strict=True)
    return sum(len([node for node in new.replicas if node not in old.replicas]) for old, new in pairs)


async def _watch(to: Connection, admin: AdminClient, progress: Progress) -> list[Sample]:
    """Takes samples of the received bytes until no reassignment is open. Raises `TimeoutError`."""
    samples: list[Sample] = []
    total = 0
    async with asyncio.timeout(MOVED_S_MAX):
        while left := len(await admin.list_reassignments()):
            total = max(total, left)
            progress(total - left, total)
            sent_s = time.monotonic()
            received = (await read_counters(**to)).get(RECEIVED, 0.0)
            samples.append(Sample((sent_s + time.monotonic()) / 2, received))
            await asyncio.sleep(SAMPLE_EVERY_S)
    return samples


def rates_of(samples: list[Sample]) -> dict[str, float]:
    """Returns the mean rate of the move, and the least and greatest rate in windows of `WINDOW_S` seconds within it, in
    megabytes (10^6 bytes) per second."""
    if len(samples) < 2:
        return {}
    first, last = samples[0], samples[-1]
    figures = {"moved_mb": last.received_bytes / 1e6, "rate_mb_per_s": _rate(first, last)}
    windows = []
    for i, begin in enumerate(samples):
        end = next((sample for sample in samples[i:] if sample.moment_s - begin.moment_s >= WINDOW_S), None)
        if end is not None:
            windows.append(_rate(begin, end))
    if windows:
        figures |= {"rate_window_min_mb_per_s": min(windows), "rate_window_max_mb_per_s": max(windows)}
    return figures


def _rate(begin: Sample, end: Sample) -> float:
    return (end.received_bytes - begin.received_bytes) / (end.moment_s - begin.moment_s) / 1e6


# -- records -----------------------------------------------------------------------------------------------------------


async def _fill(to: Connection, options: MoveOptions, written: _Written) -> None:
    """Writes the initial data, in records with negative numbers, to distinguish them from those of the load."""
    values = make_values("random", options.value_bytes)
    async with Producer(**to) as producer, asyncio.TaskGroup() as tasks:
        for number in range(1, 1 + options.data_mb * 1_000_000 // options.value_bytes):
            partition = number % options.partitions
            value = b"%020d" % -number + values[number % len(values)][20:]
            delivery = await producer.send(TOPIC, value, partition=partition)
            tasks.create_task(_acknowledge(delivery, written.numbers[partition], -number))


async def _acknowledge(delivery: Delivery, numbers: dict[int, int], number: int) -> None:
    receipt = await delivery
    assert receipt.offset is not None
    numbers[receipt.offset] = number


async def _load(to: Connection, written: _Written, over: asyncio.Event) -> None:
    async with Producer(**to, linger_ms=0) as producer, asyncio.TaskGroup() as tasks:
        for number in count(1):
            if over.is_set():
                return
            partition = number % len(written.numbers)
            sent_s = time.monotonic()
            delivery = await producer.send(TOPIC, (b"%020d" % number).ljust(LOAD_BYTES, b"."), partition=partition)
            tasks.create_task(_time(delivery, written, partition, number, sent_s))
            await asyncio.sleep(SEND_EVERY_S)


async def _time(delivery: Delivery, written: _Written, partition: int, number: int, sent_s: float) -> None:
    await _acknowledge(delivery, written.numbers[partition], number)
    written.latencies.append((sent_s, time.monotonic() - sent_s))


async def _verified(to: Connection, written: _Written) -> dict[str, float]:
    """Reads all records back, and returns how many were acknowledged, read, and different. Raises `TimeoutError` if
    fewer come than were acknowledged."""
    acknowledged = sum(map(len, written.numbers))
    read = different = 0
    async with Consumer(**to, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(TOPIC, partition) for partition in range(len(written.numbers))])
        async with asyncio.timeout(READ_S_MAX):
            while read < acknowledged:
                for partition, records in (await consumer.getmany(timeout_ms=1_000)).items():
                    numbers = written.numbers[partition.partition]
                    read += len(records)
                    different += sum(
                        int((record.value or b"0")[:20]) != numbers.get(record.offset) for record in records
                    )
    return {"records_acknowledged": acknowledged, "records_read": read, "records_different": different}
