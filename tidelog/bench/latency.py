"""Benchmark workload `latency`: the time of single records, from `send` to the acknowledgement and to a waiting
consumer.

Each of `tasks` tasks sends its next record when its last one is acknowledged. The consumer runs in the same event loop,
so that both times use one clock; its cost is part of both. Without a consumer only the acknowledgement is measured.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass

from tidelog.bench.costs import costs
from tidelog.bench.payload import DISTINCT, make_values
from tidelog.bench.result import Progress, Result, ignore, percentiles_ms, rates
from tidelog.bench.target import Target, TargetOptions, open_target
from tidelog.consumer import Consumer
from tidelog.producer import Producer

WARM_UP_RECORDS = 100
NUMBER_BYTES = 8
PROGRESS_EVERY = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyOptions(TargetOptions):
    """Options of the workload `latency`. With `reads`, a consumer waits for every record."""

    records: int = 5_000
    value_bytes: int = 100
    tasks: int = 1
    acks: str = "all"
    reads: bool = True


async def measure_latency(options: LatencyOptions, progress: Progress) -> Result:
    """Runs the workload `latency` and returns its figures."""
    async with open_target(options) as target:
        return await send_to(target, options, progress)


async def send_to(target: Target, options: LatencyOptions, progress: Progress = ignore) -> Result:
    """Sends the records to an existing target, and returns the figures."""
    run = _Run(options, progress)
    await run.warm_up(target)
    async with AsyncExitStack() as stack:
        producer = await stack.enter_async_context(
            Producer(acks=options.acks, transport=options.transport, **target.to)
        )
        work = [run.send(producer, target.topic) for _ in range(options.tasks)]
        if options.reads:
            consumer = await stack.enter_async_context(Consumer(target.topic, transport=options.transport, **target.to))
            work.append(run.receive(consumer))
        before = await target.begin()
        started_s = time.perf_counter()
        await asyncio.gather(*work)
        seconds = time.perf_counter() - started_s
        after = await target.end()
    value_bytes = options.records * max(options.value_bytes, NUMBER_BYTES)
    figures = {
        **rates(options.records, value_bytes, seconds),
        **percentiles_ms(run.ack_s, "ack_"),
        **percentiles_ms(run.delivery_s, "delivery_"),
        **costs(before, after, value_bytes),
    }
    return Result("latency", options.parameters, figures)


class _Run:
    """State shared by the senders and the receiver: when each record was sent, and how long it took."""

    def __init__(self, options: LatencyOptions, progress: Progress) -> None:
        self.ack_s: list[float] = []
        self.delivery_s: list[float] = []
        self._values = make_values("random", max(0, options.value_bytes - NUMBER_BYTES))
        self._sent_s = [0.0] * options.records
        self._numbers = iter(range(options.records))
        self._is_read = options.reads
        self._progress = progress

    async def warm_up(self, target: Target) -> None:
        """Sends some unmeasured records, to open connections and files and to fill caches."""
        async with Producer(**target.to) as producer:
            for number in range(WARM_UP_RECORDS):
                await producer.send_and_wait(target.topic, self._values[number % DISTINCT])

    async def send(self, producer: Producer, topic: str) -> None:
        """Sends the remaining records one after the other, each when the last one is acknowledged. Several tasks may
        run this."""
        for number in self._numbers:
            value = number.to_bytes(NUMBER_BYTES, "big") + self._values[number % DISTINCT]
            started_s = self._sent_s[number] = time.perf_counter()
            await producer.send_and_wait(topic, value)
            self.ack_s.append(time.perf_counter() - started_s)
            if not self._is_read:
                self._report(len(self.ack_s))

    async def receive(self, consumer: Consumer) -> None:
        """Receives every record once, and notes the time since it was sent."""
        total = len(self._sent_s)
        while len(self.delivery_s) < total:
            record = await consumer.getone()
            now_s = time.perf_counter()
            assert record.value is not None
            number = int.from_bytes(record.value[:NUMBER_BYTES], "big")
            self.delivery_s.append(now_s - self._sent_s[number])
            self._report(len(self.delivery_s))

    def _report(self, done: int) -> None:
        if done == len(self._sent_s) or not done % PROGRESS_EVERY:
            self._progress(done, len(self._sent_s))
