"""Benchmark workload `failover`: partition leaders are killed one after another while records are written and read.

Every partition has replicas on three brokers. A record is acknowledged by all in-sync replicas, or, if `protocol` is
paxos, by a majority. Measured is how long the partition is unavailable: the longest time between two acknowledgements,
and between two batches read, from a kill until the broker is back. A leader that is the active controller as well takes
longer to replace, since the brokers have to elect a controller first, after the lease of the dead one has ended; such
failovers are reported separately. The leaders are killed in random order: in fixed order the kills would follow the
controller, which moves to the next broker with each kill, and would count it too often.
"""

from __future__ import annotations

import asyncio
import math
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from random import Random

from tidelog.admin import AdminClient
from tidelog.bench.pause import Done, write_steadily
from tidelog.bench.result import Progress, Result
from tidelog.bench.secured import Connection, Level, secured_cluster
from tidelog.consumer import Consumer
from tidelog.model.ids import TopicPartition
from tidelog.testing import LocalCluster

REPLICAS = 3
TOPIC = "failover"
SEND_EVERY_S = 0.001
"""Seconds between two records. The load is steady and far below a broker's capacity, so that a stall is caused by the
failover and not by a queue."""
SETTLE_S = 0.5
DOWN_S = 2.0
"""Seconds that a killed broker stays away: longer than it takes to replace a leader."""
IN_SYNC_S_MAX = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverOptions:
    """Options of the workload `failover`. `graceful` stops leaders (SIGTERM) instead of killing them, as in a rolling
    upgrade."""

    kills: int = 10
    brokers: int = REPLICAS
    """Number of brokers. The topic has as many partitions, each led by another broker."""
    value_bytes: int = 100
    protocol: str = "isr"
    graceful: bool = False
    security: Level = Level.PLAIN


@dataclass(slots=True)
class _Stalls:
    """Stalls of the writer and the reader in milliseconds, one entry for each killed leader, and whether it was the
    active controller."""

    produce_ms: list[float] = field(default_factory=list)
    consume_ms: list[float] = field(default_factory=list)
    was_controller: list[bool] = field(default_factory=list)


async def measure_failover(options: FailoverOptions, progress: Progress) -> Result:
    """Runs the workload `failover` on a cluster started for it."""
    acknowledged, read = ({partition: Done() for partition in range(options.brokers)} for _ in range(2))
    stalls = _Stalls()
    over = asyncio.Event()
    async with secured_cluster(options.security, options.brokers) as (cluster, to), AdminClient(**to) as admin:
        configs = {"commit.protocol": options.protocol}
        await admin.create_topic(TOPIC, partitions=options.brokers, replication_factor=REPLICAS, configs=configs)
        async with asyncio.TaskGroup() as tasks:
            every_s = SEND_EVERY_S * options.brokers
            writing = tasks.create_task(
                write_steadily(to, TOPIC, options.value_bytes, acknowledged, over, every_s=every_s)
            )
            reading = tasks.create_task(_consume(to, read))
            try:
                for number, partition in enumerate(islice(_drawn(options.brokers), options.kills)):
                    done = acknowledged[partition], read[partition]
                    await _fail_over(cluster, admin, partition, done, stalls, graceful=options.graceful)
                    progress(number + 1, options.kills)
            finally:
                over.set()
            await writing
            await _until_read(read, _count(acknowledged))
            reading.cancel()
    return Result("failover", asdict(options), _figures(stalls, acknowledged, read))


def _drawn(partitions: int) -> Iterator[int]:
    """Yields partitions without end, in random order, each as often as the others; the same sequence in each run."""
    rng = Random(partitions)  # noqa: S311 - dice, not secrets
    while True:
        yield from rng.sample(range(partitions), partitions)


def _count(by_partition: dict[int, Done]) -> int:
    return sum(len(done.times) for done in by_partition.values())


async def _fail_over(
    cluster: LocalCluster,
    admin: AdminClient,
    partition: int,
    done: tuple[Done, Done],
    stalls: _Stalls,
    *,
    graceful: bool,
) -> None:
    """Stops or kills the leader of one partition, measures the stalls, and restarts the broker. `done` are the times of
    that partition's acknowledgements and of its reads."""
    await _until_in_sync(admin)
    await admin.elect_preferred_leaders()
    await asyncio.sleep(SETTLE_S)
    leader = (await admin.describe_topic(TOPIC)).partitions[partition].leader
    stalls.was_controller.append(leader == (await admin.describe_cluster()).controller_id)
    begin_s = time.monotonic()
    await asyncio.to_thread(cluster.stop if graceful else cluster.kill, leader)
    await asyncio.sleep(DOWN_S)
    for clock, stalls_ms in zip(done, (stalls.produce_ms, stalls.consume_ms), strict=True):
        stalls_ms.append(1000 * clock.stall_touching_s((begin_s, math.inf)))
    await asyncio.to_thread(cluster.restart, leader)


async def _until_in_sync(admin: AdminClient) -> None:
    async with asyncio.timeout(IN_SYNC_S_MAX):
        while True:
            if all(len(partition.isr) == REPLICAS for partition in (await admin.describe_topic(TOPIC)).partitions):
                return
            await asyncio.sleep(0.05)


async def _until_read(read: dict[int, Done], count: int) -> None:
    """Waits until all acknowledged records are read. Raises `TimeoutError` if they do not come within `IN_SYNC_S_MAX`
    seconds."""
    async with asyncio.timeout(IN_SYNC_S_MAX):
        while _count(read) < count:  # noqa: ASYNC110 - looked at once, at the end
            await asyncio.sleep(0.05)


async def _consume(to: Connection, read: dict[int, Done]) -> None:
    async with Consumer(**to, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(TOPIC, partition) for partition in range(len(read))])
        while True:
            for partition, records in (await consumer.getmany(timeout_ms=1_000)).items():
                now_s = time.monotonic()
                read[partition.partition].times += [(now_s, now_s)] * len(records)


def _figures(stalls: _Stalls, acknowledged: dict[int, Done], read: dict[int, Done]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for name, stalls_ms in (("produce", stalls.produce_ms), ("consume", stalls.consume_ms)):
        figures[f"{name}_stall_median_ms"] = statistics.median(stalls_ms)
        figures[f"{name}_stall_p99_ms"] = sorted(stalls_ms)[math.ceil(0.99 * len(stalls_ms)) - 1]
        figures[f"{name}_stall_worst_ms"] = max(stalls_ms)
        of_controllers = [stall_ms for stall_ms, is_it in zip(stalls_ms, stalls.was_controller, strict=True) if is_it]
        if of_controllers:
            figures[f"{name}_stall_of_controller_median_ms"] = statistics.median(of_controllers)
            figures[f"{name}_stall_of_controller_worst_ms"] = max(of_controllers)
    figures["failovers"] = len(stalls.produce_ms)
    figures["failovers_of_controller"] = sum(stalls.was_controller)
    figures["records_acknowledged"], figures["records_read"] = _count(acknowledged), _count(read)
    return figures
