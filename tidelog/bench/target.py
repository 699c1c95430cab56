"""The target of a benchmark: brokers that run already or are started for it, a topic, and the brokers' counters."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Unpack

from yarl import URL

from tidelog.admin import AdminClient
from tidelog.bench.costs import Reading, cpu_of, own_cpu
from tidelog.bench.secured import Connection, Level, connections_to, secured_cluster
from tidelog.model.errors import NotFound
from tidelog.transport.addresses import parse_bootstrap
from tidelog.transport.frames.session import AUTO
from tidelog.transport.security import SecurityParameters

HTTP_ONLY: Final = "http"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOptions:
    """Options of a workload that say which brokers and which topic it uses.

    If `bootstrap` is None, `brokers` brokers with this `security` are started; else `connection` has the parameters for
    connecting to the running ones. If `topic` is None, one is created with these `partitions`, `protocol`
    (`commit.protocol`) and `durability` (`ack.durability`), with a replica on up to three brokers. `transport` is that
    of producers and consumers; brokers started here have a listener for it.
    """

    bootstrap: str | None = None
    topic: str | None = None
    brokers: int = 1
    partitions: int = 1
    protocol: str = "isr"
    durability: str = "fsynced"
    security: Level = Level.PLAIN
    transport: str = AUTO
    connection: SecurityParameters = field(default_factory=SecurityParameters)

    @property
    def parameters(self) -> dict[str, Any]:
        """Returns the options for the result, without `connection`, which names files."""
        return {name: value for name, value in asdict(self).items() if name != "connection"}


@dataclass(frozen=True, slots=True)
class Target:
    """The brokers and the topic of a workload. `pids` are the process ids of brokers started here."""

    to: Connection
    topic: str
    pids: tuple[int, ...] = ()

    async def begin(self) -> Reading:
        """Reads all counters and then the CPU times, so that reading counters does not count in the run."""
        counters = await read_counters(**self.to)
        return Reading(time.perf_counter(), own_cpu(), tuple(map(cpu_of, self.pids)), counters)

    async def end(self) -> Reading:
        """Reads the CPU times and then all counters, so that reading counters does not count in the run."""
        moment_s, client, brokers = time.perf_counter(), own_cpu(), tuple(map(cpu_of, self.pids))
        return Reading(moment_s, client, brokers, await read_counters(**self.to))

    async def leaders(self) -> list[str]:
        """Returns the base URL of each partition's leader, in the order of the partitions."""
        async with AdminClient(**self.to) as admin:
            addresses = {broker.broker_id: broker.address for broker in await admin.list_brokers()}
            topic = await admin.describe_topic(self.topic)
        return [addresses[partition.leader] for partition in topic.partitions]


@asynccontextmanager
async def open_target(options: TargetOptions) -> AsyncIterator[Target]:
    """Yields the target that the options describe; brokers and topics made for the run are removed afterwards."""
    if options.bootstrap is None:
        has_frames = options.transport != HTTP_ONLY
        async with (
            secured_cluster(options.security, options.brokers, kafka=has_frames) as (cluster, to),
            _topic(to, options) as name,
        ):
            yield Target(to, name, tuple(cluster.broker(node_id).pid for node_id in cluster.node_ids))
    else:
        running: Connection = {"bootstrap_servers": options.bootstrap, **options.connection}
        async with _topic(running, options) as name:
            yield Target(running, name)


@asynccontextmanager
async def _topic(to: Connection, options: TargetOptions) -> AsyncIterator[str]:
    async with AdminClient(**to) as admin:
        if options.topic is not None and options.topic in await admin.list_topics():
            yield options.topic
            return
        name = f"bench-{time.time_ns():x}" if options.topic is None else options.topic
        configs = {"commit.protocol": options.protocol, "ack.durability": options.durability}
        await admin.create_topic(name, partitions=options.partitions, configs=configs)
        try:
            yield name
        finally:
            if options.topic is None:
                await admin.delete_topic(name)


async def read_counters(
    bootstrap_servers: str, *, labelled: bool = False, **security: Unpack[SecurityParameters]
) -> dict[str, float]:
    """Returns the metrics without labels, or if `labelled` those with labels, summed over the named brokers. Brokers
    that serve metrics at http.ops.listener only are left out."""
    total: Counter[str] = Counter()
    async with connections_to(1, bootstrap_servers, **security) as connections:
        for address in parse_bootstrap(bootstrap_servers):
            answer = await connections.request("GET", URL(f"{address}/metrics"), timeout_s=30)
            if isinstance(answer.error, NotFound):
                continue
            if answer.error is not None:
                raise answer.error
            lines = (line.rpartition(" ") for line in answer.body.decode().splitlines() if not line.startswith("#"))
            total.update({name: float(value) for name, _, value in lines if ("{" in name) is labelled})
    return dict(total)
