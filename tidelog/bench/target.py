"""The target of a workload: brokers that run already, or fresh ones; a topic of the run's own; the brokers'
own counts.
"""

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
    """The options that say what is measured. `bootstrap` None: `brokers` that are started for the run. `topic` None:
    one that is made for it, with that many `partitions`, that `commit.protocol` and `ack.durability`, and a replica on
    each of at most three brokers. `security` is that of brokers that are started, `connection` the parameters for those
    of `bootstrap`. `transport` is that of producers and consumers; brokers that are started have a listener for it.
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
        """Returns what a result tells of what was asked for; the names of its files are nobody's business."""
        return {name: value for name, value in asdict(self).items() if name != "connection"}


@dataclass(frozen=True, slots=True)
class Target:
    """Brokers and a topic on them. `pids` are known of brokers that were started here."""

    to: Connection
    topic: str
    pids: tuple[int, ...] = ()

    async def begin(self) -> Reading:
        """Reads all counts, CPU time last: what asking for counts costs is no part of the run."""
        counters = await read_counters(**self.to)
        return Reading(time.perf_counter(), own_cpu(), tuple(map(cpu_of, self.pids)), counters)

    async def end(self) -> Reading:
        """Reads all counts, CPU time first."""
        moment_s, client, brokers = time.perf_counter(), own_cpu(), tuple(map(cpu_of, self.pids))
        return Reading(moment_s, client, brokers, await read_counters(**self.to))

    async def leaders(self) -> list[str]:
        """The base URL of each partition's leader, in the order of the partitions."""
        async with AdminClient(**self.to) as admin:
            addresses = {broker.broker_id: broker.address for broker in await admin.list_brokers()}
            topic = await admin.describe_topic(self.topic)
        return [addresses[partition.leader] for partition in topic.partitions]


@asynccontextmanager
async def open_target(options: TargetOptions) -> AsyncIterator[Target]:
    """Yields the target that the options describe; brokers and topics made for the run are gone after it."""
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
    """Returns the counters without labels, or those that have some, with them; summed over the brokers that are named,
    but for those that show them at http.ops.listener alone, which nobody here knows."""
    total: Counter[str] = Counter()
    connections = connections_to(1, bootstrap_servers, **security)
    await connections.open()
    try:
        for address in parse_bootstrap(bootstrap_servers):
            answer = await connections.request("GET", URL(f"{address}/metrics"), timeout_s=30)
            if isinstance(answer.error, NotFound):
                continue
            if answer.error is not None:
                raise answer.error
            lines = (line.rpartition(" ") for line in answer.body.decode().splitlines() if not line.startswith("#"))
            total.update({name: float(value) for name, _, value in lines if ("{" in name) is labelled})
    finally:
        await connections.close()
    return dict(total)
