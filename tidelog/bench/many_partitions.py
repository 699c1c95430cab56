"""Part of the benchmark workload `partitions`: many partitions are created, written to, and read after a kill.

A client in a process of its own writes a record to another topic every `WRITE_EVERY_S` seconds (`probe.py`), first
without other load, then while the topics are created and their partitions opened. Measured are

- the time until all topics are created, and until all partitions are open, that is, until ListOffsets answers for each;
- the acknowledgement times of that client, before and meanwhile, and how often it was refused;
- the growth of the brokers' resident memory per partition and per replica;
- the CPU share of all idle brokers, before there are partitions, and with them;
- the time to write one record to each partition, from one producer;
- after all brokers were killed (SIGKILL), the time from their start until they are ready, until the first record is
  read, and until one of each partition is, by one consumer of all.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from tidelog.admin import AdminClient
from tidelog.bench.costs import cpu_s_of, resident_bytes_of
from tidelog.bench.partition_options import (
    PartitionsOptions,
    Steps,
    admin_of,
    cluster_for,
    create,
    partitions_of,
    pieces,
)
from tidelog.bench.payload import make_values
from tidelog.bench.probe import Probe, probing, writes_to
from tidelog.bench.result import percentiles_ms
from tidelog.bench.secured import Connection, at
from tidelog.consumer import Consumer
from tidelog.model.ids import TopicPartition
from tidelog.producer import Producer
from tidelog.testing import LocalCluster

WRITER_TOPIC: Final = "other"
WRITE_EVERY_S: Final = 0.01
CALM_S: Final = 2.0
SETTLE_S: Final = 1.0
LOOK_S: Final = 0.02
OFFSETS_AT_ONCE: Final = 1_000
OPEN_S_MAX: Final = 600.0
READ_S_MAX: Final = 600.0
STEPS: Final = 6
"""Progress steps of `measure_many`, besides one for each topic: open, idle, written, idle, ready, read."""


def steps_of(options: PartitionsOptions) -> int:
    """Returns the number of progress steps of `measure_many`, one part of the workload `partitions`; 0 if the options
    leave it out."""
    return STEPS + -(-options.partitions // options.topic_partitions) if options.partitions else 0


async def measure_many(options: PartitionsOptions, steps: Steps) -> dict[str, float]:
    """Measures the creation of many partitions, writes to them, and reads after a kill of all brokers (a part of the
    workload `partitions`), on brokers started for it. Returns the figures by name."""
    topics = dict(pieces("many", options.partitions, options.topic_partitions))
    everything = [partition for topic, count in topics.items() for partition in partitions_of(topic, count)]
    async with cluster_for(options, options.partitions) as (cluster, to), admin_of(to) as admin:
        await create(admin, options, WRITER_TOPIC, 1)
        figures = {"idle_before_percent": await _idle_percent(cluster, options)}
        figures |= await _made(cluster, to, admin, options, topics, steps)
        figures["idle_empty_percent"] = await _idle_percent(cluster, options)
        steps.did_one()
        figures["write_one_each_s"] = await _written(to, options, everything)
        steps.did_one()
        figures["idle_written_percent"] = await _idle_percent(cluster, options)
        steps.did_one()
        return figures | await _read_after_a_kill(cluster, to, everything, steps)


async def _idle_percent(cluster: LocalCluster, options: PartitionsOptions) -> float:
    """Returns the CPU use of all idle brokers together, in percent of one core, over `options.idle_s` seconds; 0 if
    that is 0."""
    if not options.idle_s:
        return 0.0
    await asyncio.sleep(SETTLE_S)
    before_s, begin_s = cpu_s_of(cluster), time.monotonic()
    await asyncio.sleep(options.idle_s)
    return 100 * (cpu_s_of(cluster) - before_s) / (time.monotonic() - begin_s)


async def _made(
    cluster: LocalCluster,
    to: Connection,
    admin: AdminClient,
    options: PartitionsOptions,
    topics: dict[str, int],
    steps: Steps,
) -> dict[str, float]:
    """Creates the topics beside a client that writes; returns the figures of both."""
    leader = cluster.broker((await admin.describe_topic(WRITER_TOPIC)).partitions[0].leader)
    async with probing(at(to, leader.url), writes_to(WRITER_TOPIC, options.value_bytes, WRITE_EVERY_S)) as writer:
        calm_s = time.monotonic()
        await asyncio.sleep(CALM_S)
        before, begin_s = resident_bytes_of(cluster), time.monotonic()
        for topic, count in topics.items():
            await create(admin, options, topic, count)
            steps.did_one()
        created_s = time.monotonic()
        await until_open(admin, topics)
        open_s = time.monotonic()
        steps.did_one()
        await asyncio.sleep(SETTLE_S)
    grown = resident_bytes_of(cluster) - before
    return {
        "topics": len(topics),
        "created_s": created_s - begin_s,
        "open_s": open_s - begin_s,
        **writer_figures(writer, (calm_s, begin_s), (begin_s, open_s)),
        "kb_per_partition": grown / options.partitions / 1000,
        "kb_per_replica": grown / options.partitions / options.replicas / 1000,
    }


def writer_figures(writer: Probe, calm: tuple[float, float], making: tuple[float, float]) -> dict[str, float]:
    """Returns the writer's waiting times in the `calm` and the `making` span, and how often it was refused in both."""
    figures: dict[str, float] = {}
    for name, span in (("writer_calm_", calm), ("writer_", making)):
        waits = writer.between(*span)
        if waits:
            figures |= percentiles_ms(waits, name) | {f"{name}worst_ms": 1000 * max(waits)}
    return figures | {"writer_refused": writer.refused_between(calm[0], making[1])}


async def until_open(admin: AdminClient, topics: dict[str, int]) -> None:
    """Waits until ListOffsets answers for all partitions. Raises `TimeoutError` after `OPEN_S_MAX` seconds."""
    left = [partition for topic, count in topics.items() for partition in partitions_of(topic, count)]
    async with asyncio.timeout(OPEN_S_MAX):
        while left:
            some = await admin.list_offsets(left[:OFFSETS_AT_ONCE])
            left = [partition for partition, offsets in some.items() if offsets.error is not None] + left[
                OFFSETS_AT_ONCE:
            ]
            await asyncio.sleep(LOOK_S)


async def _written(to: Connection, options: PartitionsOptions, everything: list[TopicPartition]) -> float:
    """Returns the seconds to write a record to each partition, from the first `send` to the last acknowledgement."""
    value = make_values("random", options.value_bytes)[0]
    async with Producer(**to) as producer:
        begin_s = time.monotonic()
        for topic, partition in everything:
            await producer.send(topic, value, partition=partition)
        await producer.flush()
        return time.monotonic() - begin_s


async def _read_after_a_kill(
    cluster: LocalCluster, to: Connection, everything: list[TopicPartition], steps: Steps
) -> dict[str, float]:
    """Kills and restarts all brokers, and returns the times until they are ready and all partitions are read. Raises
    `TimeoutError` if an acknowledged record does not come."""
    await asyncio.to_thread(cluster.kill, *cluster.node_ids)
    begin_s = time.monotonic()
    await asyncio.to_thread(cluster.restart, *cluster.node_ids)
    ready_s = time.monotonic()
    steps.did_one()
    async with Consumer(**to, auto_offset_reset="earliest") as consumer:
        consumer.assign(everything)
        batches = await consumer.getmany(timeout_ms=1000 * READ_S_MAX, max_records=1)
        first_s, read = time.monotonic(), set(batches)
        async with asyncio.timeout(READ_S_MAX):
            while len(read) < len(everything):
                read |= (await consumer.getmany(timeout_ms=1_000)).keys()
                await asyncio.sleep(LOOK_S)  # a look goes over all partitions, so it had better find many
    read_s = time.monotonic()
    steps.did_one()
    return {
        "restart_ready_s": ready_s - begin_s,
        "restart_first_read_s": first_s - begin_s,
        "restart_all_read_s": read_s - begin_s,
        "partitions_read": len(read),
    }
