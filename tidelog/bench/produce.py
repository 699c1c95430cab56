"""Benchmark workload `produce`: sends records as fast as the producer and the broker can, every one acknowledged.

The reported latency is from `send` to the acknowledgement, of one record in `SAMPLE_EVERY`: under full load it is
mostly queueing.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from tidelog.bench.costs import costs
from tidelog.bench.payload import DISTINCT, Kind, make_values
from tidelog.bench.result import Progress, Result, ignore, percentiles_ms, rates
from tidelog.bench.target import Target, TargetOptions, open_target
from tidelog.producer import Delivery, Producer

SAMPLE_EVERY = 1000
CHUNK = 10_000
WARM_UP_RECORDS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceOptions(TargetOptions):
    """Options of the workload `produce`: the records to send, and how. With `at_once` > 1 they are sent by
    `send_batch`."""

    records: int = 1_000_000
    value_bytes: int = 100
    values: Kind = "random"
    at_once: int = 1
    acks: str = "all"
    linger_ms: float = 5
    batch_bytes: int = 65536
    compression: str = "none"
    idempotent: bool = True


async def measure_produce(options: ProduceOptions, progress: Progress) -> Result:
    """Runs the workload `produce` and returns its figures."""
    async with open_target(options) as target:
        return await produce_to(target, options, progress)


async def produce_to(target: Target, options: ProduceOptions, progress: Progress = ignore) -> Result:
    """Sends the records to an existing target, and returns the figures."""
    sampler = _Sampler()
    async with Producer(
        **target.to,
        acks=options.acks,
        linger_ms=options.linger_ms,
        batch_size=options.batch_bytes,
        compression_type=options.compression,
        enable_idempotence=options.idempotent,
        transport=options.transport,
    ) as producer:
        values = make_values(options.values, options.value_bytes)
        await (await producer.send_batch(target.topic, (values * 2)[:WARM_UP_RECORDS]))
        before = await target.begin()
        started_s = time.perf_counter()
        if options.at_once > 1:
            await _send_batches(producer, target.topic, values, options, progress)
        else:
            await _send_each(producer, target.topic, values, options.records, sampler, progress)
        await producer.flush()
        seconds = time.perf_counter() - started_s
        await sampler.close()
        after = await target.end()
    value_bytes = options.records * options.value_bytes
    figures = {
        **rates(options.records, value_bytes, seconds),
        **percentiles_ms(sampler.seconds, "ack_"),
        **costs(before, after, value_bytes),
    }
    return Result("produce", options.parameters, figures)


async def _send_each(
    producer: Producer, topic: str, values: list[bytes], records: int, sampler: _Sampler, progress: Progress
) -> None:
    for start in range(0, records, CHUNK):
        for number in range(start, min(start + CHUNK, records)):
            delivery = await producer.send(topic, values[number % DISTINCT])
            if not number % SAMPLE_EVERY:
                sampler.watch(delivery)
        progress(min(start + CHUNK, records), records)


async def _send_batches(
    producer: Producer, topic: str, values: list[bytes], options: ProduceOptions, progress: Progress
) -> None:
    some = (values * (options.at_once // DISTINCT + 1))[: options.at_once]
    for start in range(0, options.records, options.at_once):
        await producer.send_batch(topic, some[: options.records - start])
        progress(min(start + options.at_once, options.records), options.records)


class _Sampler:
    """Waits for sampled deliveries, each in a task of its own, and notes how long they took."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def watch(self, delivery: Delivery) -> None:
        task = asyncio.get_running_loop().create_task(self._wait(delivery, time.perf_counter()))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        await asyncio.gather(*self._tasks)

    async def _wait(self, delivery: Delivery, started_s: float) -> None:
        await delivery
        self.seconds.append(time.perf_counter() - started_s)
