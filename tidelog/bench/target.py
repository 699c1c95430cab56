"""What is measured: brokers that run already, or fresh ones; a topic of the run's own; the brokers' own counts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from yarl import URL

from tidelog.admin import AdminClient
from tidelog.bench.costs import Reading, cpu_of, own_cpu
from tidelog.model.errors import NotFound
from tidelog.testing import LocalCluster
from tidelog.transport.addresses import parse_bootstrap
from tidelog.transport.connections import Connections


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOptions:
    """What to measure. `bootstrap` None: `brokers` that are started for the run. `topic` None: one that is made for it,
    with that many `partitions`, that `commit.protocol` and `ack.durability`, and a replica on each of at most three
    brokers."""

    bootstrap: str | None = None
    topic: str | None = None
    brokers: int = 1
    partitions: int = 1
    protocol: str = "isr"
    durability: str = "fsynced"


@dataclass(frozen=True, slots=True)
class Target:
    """Brokers and a topic on them. `pids` are known of brokers that were started here."""

    bootstrap: str
    topic: str
    pids: tuple[int, ...] = ()

    async def begin(self) -> Reading:
        """Reads all counts, CPU time last: what asking for counts costs is no part of the run."""
        counters = await read_counters(self.bootstrap)
        return Reading(time.perf_counter(), own_cpu(), tuple(map(cpu_of, self.pids)), counters)

    async def end(self) -> Reading:
        """Reads all counts, CPU time first."""
        moment_s, client, brokers = time.perf_counter(), own_cpu(), tuple(map(cpu_of, self.pids))
        return Reading(moment_s, client, brokers, await read_counters(self.bootstrap))

    async def leaders(self) -> list[str]:
        """The base URL of each partition's leader, in the order of the partitions."""
        async with AdminClient(self.bootstrap) as admin:
            addresses = {broker.broker_id: broker.address for broker in await admin.list_brokers()}
            topic = await admin.describe_topic(self.topic)
        return [addresses[partition.leader] for partition in topic.partitions]


@asynccontextmanager
async def open_target(options: TargetOptions) -> AsyncIterator[Target]:
    """What the options say; what is made for the run is gone after it."""
    if options.bootstrap is None:
        async with LocalCluster(options.brokers) as cluster, _topic(cluster.bootstrap, options) as name:
            yield Target(cluster.bootstrap, name, tuple(cluster.broker(node_id).pid for node_id in cluster.node_ids))
    else:
        async with _topic(options.bootstrap, options) as name:
            yield Target(options.bootstrap, name)


@asynccontextmanager
async def _topic(bootstrap: str, options: TargetOptions) -> AsyncIterator[str]:
    async with AdminClient(bootstrap) as admin:
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


async def read_counters(bootstrap: str, *, labelled: bool = False) -> dict[str, float]:
    """The counters without labels, or those that have some, with them; summed over the brokers that are named, but
    for those that show them at http.ops.listener alone, which nobody here knows."""
    total: Counter[str] = Counter()
    connections = Connections(connections_max=1)
    await connections.open()
    try:
        for address in parse_bootstrap(bootstrap):
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
