"""Benchmark workload `idle-consumers`: many REST consumer instances that subscribe and then send no requests.

The instances are spread evenly over `groups`, and so over the brokers, which each coordinate a part of the groups. They
subscribe to the topic that is written to. In a round, records are written one at a time, the instances are created, as
many records are written again, and the instances are deleted. So other load of the machine affects both halves of a
round. Measured are

- the growth of all brokers together per instance: resident memory, in the first round, when it comes fresh from the
  system;
- how many instances are created per second, each by two requests, with `at_once` requests in flight; and deleted;
- the times of acknowledgements without and with instances, over all rounds; and the ratio of the p99s in each round, as
  median and maximum of the rounds.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import cycle
from typing import Final

from yarl import URL

from tidelog.admin import AdminClient
from tidelog.bench.costs import resident_bytes_of
from tidelog.bench.payload import make_values
from tidelog.bench.result import Progress, Result, percentiles_ms
from tidelog.bench.secured import Connection, Level, connections_to, secured_cluster
from tidelog.producer import Producer
from tidelog.testing import LocalCluster
from tidelog.transport.addresses import parse_bootstrap
from tidelog.transport.connections import Connections

TOPIC = "idle"
REPLICAS = 3
WARM_UP_RECORDS = 200
REQUEST_S_MAX = 30.0
SETTLE_S = 1.0
JSON: Final = {"Content-Type": "application/vnd.kafka.v2+json"}


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleConsumersOptions:
    """Options of the workload `idle-consumers`. `records` are written in each half of a round."""

    instances: int = 1000
    groups: int = 50
    brokers: int = 3
    partitions: int = 24
    rounds: int = 3
    records: int = 2000
    value_bytes: int = 100
    at_once: int = 16
    security: Level = Level.PLAIN


@dataclass(slots=True)
class _Measured:
    """Measurements of the workload, with an entry for each round."""

    without_s: list[list[float]] = field(default_factory=list)
    with_s: list[list[float]] = field(default_factory=list)
    create_s: list[float] = field(default_factory=list)
    delete_s: list[float] = field(default_factory=list)
    rss_bytes: list[tuple[int, int]] = field(default_factory=list)
    """Resident memory of all brokers in bytes, before and after the instances were created."""


class _Instances:
    """The REST consumer instances, created and deleted by plain requests to the brokers in turn."""

    def __init__(self, to: Connection, options: IdleConsumersOptions, connections: Connections) -> None:
        self._bases = cycle(parse_bootstrap(to["bootstrap_servers"]))
        self._connections = connections
        self._at_once = options.at_once
        self.paths = [
            (f"/consumers/idle-{number % options.groups}", f"i{number}") for number in range(options.instances)
        ]

    async def create(self, paths: Sequence[tuple[str, str]]) -> None:
        await self._each(self._create, paths)

    async def delete(self, paths: Sequence[tuple[str, str]]) -> None:
        await self._each(self._delete, paths)

    async def _create(self, group: str, name: str) -> None:
        await self._ask("POST", group, {"name": name})
        await self._ask("POST", f"{group}/instances/{name}/subscription", {"topics": [TOPIC]})

    async def _delete(self, group: str, name: str) -> None:
        await self._ask("DELETE", f"{group}/instances/{name}", None)

    async def _each(self, do: Callable[[str, str], Awaitable[None]], paths: Iterable[tuple[str, str]]) -> None:
        left = iter(paths)

        async def work() -> None:
            for group, name in left:
                await do(group, name)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._at_once):
                tasks.create_task(work())

    async def _ask(self, method: str, path: str, document: object) -> None:
        answer = await self._connections.request(
            method,
            URL(f"{next(self._bases)}{path}"),
            body=None if document is None else json.dumps(document).encode(),
            headers=JSON,
            timeout_s=REQUEST_S_MAX,
        )
        if answer.error is not None:
            raise answer.error


async def measure_idle_consumers(options: IdleConsumersOptions, progress: Progress) -> Result:
    """Runs the workload `idle-consumers` on brokers started for it."""
    measured = _Measured()
    async with secured_cluster(options.security, options.brokers) as (cluster, to):
        async with AdminClient(**to) as admin:
            factor = min(REPLICAS, options.brokers)
            await admin.create_topic(TOPIC, partitions=options.partitions, replication_factor=factor)
        async with connections_to(options.at_once, **to) as connections:
            instances = _Instances(to, options, connections)
            await _warm_up(to, instances, options)
            for number in range(options.rounds):
                await _round(cluster, to, instances, options, measured)
                progress(number + 1, options.rounds)
    return Result("idle-consumers", asdict(options), figures_of(options.instances, measured))


async def _warm_up(to: Connection, instances: _Instances, options: IdleConsumersOptions) -> None:
    """Creates the groups and the offsets topic, and fills caches, which are not to be measured."""
    first = instances.paths[: options.groups]
    await instances.create(first)
    await instances.delete(first)
    await _write(to, options, WARM_UP_RECORDS)


async def _round(
    cluster: LocalCluster, to: Connection, instances: _Instances, options: IdleConsumersOptions, measured: _Measured
) -> None:
    measured.without_s.append(await _write(to, options, options.records))
    before = resident_bytes_of(cluster)
    begin_s = time.perf_counter()
    await instances.create(instances.paths)
    measured.create_s.append(time.perf_counter() - begin_s)
    await asyncio.sleep(SETTLE_S)
    measured.rss_bytes.append((before, resident_bytes_of(cluster)))
    measured.with_s.append(await _write(to, options, options.records))
    begin_s = time.perf_counter()
    await instances.delete(instances.paths)
    measured.delete_s.append(time.perf_counter() - begin_s)


async def _write(to: Connection, options: IdleConsumersOptions, records: int) -> list[float]:
    """Writes one record after the other; returns the seconds that each took."""
    values = make_values("random", options.value_bytes)
    seconds = []
    async with Producer(**to, linger_ms=0) as producer:
        for number in range(records):
            begin_s = time.perf_counter()
            await producer.send_and_wait(TOPIC, values[number % len(values)], partition=number % options.partitions)
            seconds.append(time.perf_counter() - begin_s)
    return seconds


def figures_of(instances: int, measured: _Measured) -> dict[str, float]:
    """Returns the figures of all rounds: memory, rates and acknowledgement times."""
    before, after = measured.rss_bytes[0]
    ratios = [
        percentiles_ms(with_s)["p99_ms"] / percentiles_ms(without_s)["p99_ms"]
        for without_s, with_s in zip(measured.without_s, measured.with_s, strict=True)
    ]
    return {
        "kb_per_instance": (after - before) / instances / 1000,
        "brokers_before_mb": before / 1e6,
        "brokers_after_mb": after / 1e6,
        "created_per_s": instances / statistics.median(measured.create_s),
        "deleted_per_s": instances / statistics.median(measured.delete_s),
        **percentiles_ms([wait_s for waits_s in measured.without_s for wait_s in waits_s], "without_ack_"),
        **percentiles_ms([wait_s for waits_s in measured.with_s for wait_s in waits_s], "with_ack_"),
        "p99_ratio_median": statistics.median(ratios),
        "p99_ratio_worst": max(ratios),
    }
