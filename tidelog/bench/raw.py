"""Benchmark workload `raw`: sends prebuilt batches with several requests in flight, to find a broker's upper limit.

Nothing is encoded, numbered or decoded during the measurement; the client's only work is HTTP.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from yarl import URL

from tidelog.bench.costs import costs
from tidelog.bench.payload import DISTINCT, make_values
from tidelog.bench.result import Progress, Result, ignore, percentiles_ms, rates
from tidelog.bench.secured import connections_to
from tidelog.bench.target import HTTP_ONLY, Target, TargetOptions, open_target
from tidelog.model.batch_codec import encode_batch
from tidelog.model.errors import InvalidRequest
from tidelog.transport.connections import Connections, Pieces

RECORD_BYTES = 12
"""Approximate bytes of a record besides its value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawOptions(TargetOptions):
    """Options of the workload `raw`: `requests` requests of `batches` batches of about `batch_bytes` bytes, `in_flight`
    at a time, over all partitions."""

    transport: str = HTTP_ONLY
    requests: int = 2_000
    batches: int = 1
    batch_bytes: int = 65536
    value_bytes: int = 100
    in_flight: int = 8
    acks: str = "all"


async def measure_raw(options: RawOptions, progress: Progress) -> Result:
    """Runs the workload `raw`. Raises `InvalidRequest` for an option below 1."""
    if min(options.requests, options.batches, options.in_flight, options.partitions) < 1:
        raise InvalidRequest("requests, batches, in_flight and partitions must be at least 1")
    async with open_target(options) as target:
        return await post_to(target, options, progress)


async def post_to(target: Target, options: RawOptions, progress: Progress = ignore) -> Result:
    """Sends the batches to an existing target, and returns the figures."""
    async with connections_to(options.in_flight, **target.to) as connections:
        return await _measure(target, options, connections, progress)


async def _measure(target: Target, options: RawOptions, connections: Connections, progress: Progress) -> Result:
    per_batch = max(1, options.batch_bytes // (options.value_bytes + RECORD_BYTES))
    values = make_values("random", options.value_bytes)
    records = [(1_700_000_000_000, None, values[number % DISTINCT]) for number in range(per_batch)]
    body = [bytes(encode_batch(records))] * options.batches
    leaders = await target.leaders()
    urls = [
        URL(f"{leader}/topics/{target.topic}/partitions/{number}/batches?acks={options.acks}")
        for number, leader in enumerate(leaders)
    ]
    await _connect(connections, leaders, options.in_flight)
    pending = iter(range(options.requests))
    durations: list[float] = []

    async def post_all() -> None:
        for number in pending:  # shared: each request is taken by one of the posters
            started_s = time.perf_counter()
            answer = await connections.request("POST", urls[number % len(urls)], body=Pieces(body), timeout_s=60)
            if answer.error is not None:
                raise answer.error
            durations.append(time.perf_counter() - started_s)
            progress(len(durations), options.requests)

    before = await target.begin()
    started_s = time.perf_counter()
    await asyncio.gather(*(post_all() for _ in range(options.in_flight)))
    seconds = time.perf_counter() - started_s
    after = await target.end()
    count = options.requests * options.batches * per_batch
    value_bytes = count * options.value_bytes
    figures = {
        **rates(count, value_bytes, seconds),
        "requests_per_s": options.requests / seconds,
        **percentiles_ms(durations),
        **costs(before, after, value_bytes),
    }
    return Result("raw", options.parameters, figures)


async def _connect(connections: Connections, leaders: Sequence[str], in_flight: int) -> None:
    """Opens the pool's connections, so that no handshake is measured."""
    for leader in dict.fromkeys(leaders):
        asking = [connections.request("GET", URL(f"{leader}/healthz"), timeout_s=60) for _ in range(in_flight)]
        await asyncio.gather(*asking)
