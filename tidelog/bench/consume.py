"""Workload `consume`: reads records as fast as they come, by `getmany`, every record decoded and checked.

A topic of the caller's is read from its beginning, as it is; without one the records are produced first, untimed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

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
    """The options of the workload: the records to read, and how."""

    records: int = 1_000_000
    value_bytes: int = 100
    values: Kind = "random"
    compression: str = "none"
    max_records: int | None = None
    max_partition_fetch_bytes: int = 1 << 20
    check_crcs: bool = True


async def measure_consume(options: ConsumeOptions, progress: Progress) -> Result:
    """Runs the workload."""
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
        started_s = time.perf_counter()
        while count < options.records:
            found = await consumer.getmany(timeout_ms=WAIT_MS, max_records=options.max_records)
            if not found:
                raise InvalidRequest(f"the topic has only {count} records, {options.records} were to be read")
            for records in found.values():
                count += len(records)
                value_bytes += sum(len(record.value or b"") for record in records)
            progress(min(count, options.records), options.records)
        seconds = time.perf_counter() - started_s
    after = await target.end()
    figures = {**rates(count, value_bytes, seconds), **costs(before, after, value_bytes)}
    del figures["fsyncs_per_s"]
    return Result("consume", options.parameters, figures)
