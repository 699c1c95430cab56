"""Benchmark workload `consume`: reads records as fast as they come, and decodes and checks each.

Records are read by `getmany`, or as whole batches by `getbatch`, without an object for each record. A topic named by
the caller is read from its beginning; without one the records are produced first, outside the measured time.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import partial

from tidelog.bench.costs import costs
from tidelog.bench.payload import Kind
from tidelog.bench.produce import ProduceOptions, produce_to
from tidelog.bench.result import Progress, Result, rates
from tidelog.bench.target import Target, TargetOptions, open_target
from tidelog.consumer import Consumer
from tidelog.model.errors import InvalidRequest

WAIT_MS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeOptions(TargetOptions):
    """Options of the workload `consume`: the records to read, and how."""

    records: int = 1_000_000
    value_bytes: int = 100
    values: Kind = "random"
    compression: str = "none"
    max_records: int | None = None
    max_partition_fetch_bytes: int = 1 << 20
    check_crcs: bool = True
    batches: bool = False
    """True to read whole batches by `getbatch`, False to read records by `getmany`."""


async def measure_consume(options: ConsumeOptions, progress: Progress) -> Result:
    """Runs the workload `consume` and returns its figures."""
    async with open_target(options) as target:
        if options.topic is None:
            load = ProduceOptions(
                records=options.records,
                value_bytes=options.value_bytes,
                values=options.values,
                compression=options.compression,
                at_once=512,
                transport=options.transport,
            )
            await produce_to(target, load)
        return await _measure(target, options, progress)


async def _measure(target: Target, options: ConsumeOptions, progress: Progress) -> Result:
    count = value_bytes = 0
    before = await target.begin()
    async with Consumer(
        target.topic,
        **target.to,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=options.max_partition_fetch_bytes,
        check_crcs=options.check_crcs,
        transport=options.transport,
    ) as consumer:
        take = _take_batch if options.batches else partial(_take_records, max_records=options.max_records)
        started_s = time.perf_counter()
        while count < options.records:
            some, size = await take(consumer)
            if not some:
                raise InvalidRequest(f"the topic has only {count} records, {options.records} were to be read")
            count += some
            value_bytes += size
            progress(min(count, options.records), options.records)
        seconds = time.perf_counter() - started_s
    after = await target.end()
    figures = {**rates(count, value_bytes, seconds), **costs(before, after, value_bytes)}
    del figures["fsyncs_per_s"]
    return Result("consume", options.parameters, figures)


async def _take_records(consumer: Consumer, max_records: int | None) -> tuple[int, int]:
    """Reads the next records; returns their number and the bytes of their values, (0, 0) if none comes within
    `WAIT_MS`."""
    count = value_bytes = 0
    for records in (await consumer.getmany(timeout_ms=WAIT_MS, max_records=max_records)).values():
        count += len(records)
        value_bytes += sum(len(record.value or b"") for record in records)
    return count, value_bytes


async def _take_batch(consumer: Consumer) -> tuple[int, int]:
    """Reads the next batch; returns the number of its records and the bytes of their values, (0, 0) if none comes
    within `WAIT_MS`."""
    try:
        async with asyncio.timeout(WAIT_MS / 1000):
            batch = await consumer.getbatch()
    except TimeoutError:
        return 0, 0
    return len(batch), sum(map(len, filter(None, batch.values)))
