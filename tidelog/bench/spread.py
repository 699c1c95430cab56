"""Part `spread` of the benchmark workload `partitions`: one producer writes round robin to many partitions.

Every partition has had a record before. The figures are those of the workload `produce`, and how many records a batch
and how many batches a request had.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import cycle, islice
from typing import Final

from tidelog.bench.costs import APPENDED, costs
from tidelog.bench.partition_options import PartitionsOptions, Steps
from tidelog.bench.payload import DISTINCT, make_values
from tidelog.bench.result import rates
from tidelog.bench.target import HTTP_ONLY, Target, TargetOptions, open_target, read_counters
from tidelog.producer import Producer

CHUNK: Final = 10_000
REQUESTS: Final = ("tidelog_http_requests_total{", 'method="POST"', '/batches"')
"""Parts of the metric names that count the requests that write batches."""


def steps_of(options: PartitionsOptions) -> int:
    """Returns the number of progress steps of `measure_spread`, one part of the workload `partitions`; 0 if the options
    leave it out."""
    return -(-options.records // CHUNK) if options.spread else 0


async def measure_spread(options: PartitionsOptions, steps: Steps) -> dict[str, float]:
    """Measures one producer that writes to many partitions (a part of the workload `partitions`), on brokers started
    for it. Returns the figures by name."""
    chosen = TargetOptions(
        brokers=options.brokers,
        partitions=options.spread,
        protocol=options.protocol,
        security=options.security,
        transport=HTTP_ONLY,
    )
    async with open_target(chosen) as target, Producer(**target.to) as producer:
        values = make_values("random", options.value_bytes)
        await _send(producer, target.topic, values, options.spread, options.spread)
        await producer.flush()
        requests = requests_of(await read_counters(**target.to, labelled=True))
        before = await target.begin()
        begin_s = time.perf_counter()
        await _send_all(producer, target, values, options, steps)
        seconds = time.perf_counter() - begin_s
        after = await target.end()
        requests = requests_of(await read_counters(**target.to, labelled=True)) - requests
    value_bytes = options.records * options.value_bytes
    figures = {
        **rates(options.records, value_bytes, seconds),
        **fullness(options.records, after.count(APPENDED) - before.count(APPENDED), requests),
        **costs(before, after, value_bytes),
    }
    return {f"spread_{name}": value for name, value in figures.items()}


async def _send_all(
    producer: Producer, target: Target, values: list[bytes], options: PartitionsOptions, steps: Steps
) -> None:
    """Sends all records, and returns when every one is acknowledged."""
    for begin in range(0, options.records, CHUNK):
        await _send(producer, target.topic, values, options.spread, min(CHUNK, options.records - begin), begin)
        steps.did_one()
    await producer.flush()


async def _send(
    producer: Producer, topic: str, values: list[bytes], partitions: int, records: int, begin: int = 0
) -> None:
    targets = islice(cycle(range(partitions)), begin % partitions, None)
    for number, partition in zip(range(begin, begin + records), targets, strict=False):
        await producer.send(topic, values[number % DISTINCT], partition=partition)


def requests_of(counters: Mapping[str, float]) -> float:
    """Returns the number of answered requests with record batches."""
    return sum(value for name, value in counters.items() if all(part in name for part in REQUESTS))


def fullness(records: int, batches: float, requests: float) -> dict[str, float]:
    """Returns records per batch and batches per request; a ratio whose divisor is 0 is left out."""
    figures = {"batches": batches, "requests": requests}
    if batches:
        figures["records_per_batch"] = records / batches
    if requests:
        figures["batches_per_request"] = batches / requests
    return figures
