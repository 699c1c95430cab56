"""Three consumers share the flights of 2013, one of them stops half-way, and no row is missing in the end.

When it leaves, its partitions go to the other two, which go on where it has come to. Run it again on the same broker:
the group goes on where it was, and reads the rows of the new run only.

    python examples/group_of_consumers.py                                     # on a broker started for it
    python examples/group_of_consumers.py --bootstrap http://127.0.0.1:8082   # on yours
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack

from flights import read_flights

from tidelog.admin import AdminClient
from tidelog.consumer import Consumer, ConsumerRebalanceListener, TopicPartition
from tidelog.producer import Producer
from tidelog.testing import LocalCluster

PARTITIONS = 12
CHUNK_ROWS = 2_000

Rows = Counter[tuple[int, int]]
"""How often each row, by partition and offset, was handed out."""


class Reader(ConsumerRebalanceListener):
    """One of the group. It says what it is given, and what it gives up."""

    def __init__(self, name: str) -> None:
        self.name, self.rows, self.has_partitions = name, Rows(), asyncio.Event()

    def on_partitions_assigned(self, assigned: Sequence[TopicPartition]) -> None:
        self.has_partitions.set()
        print(f"{self.name:>5} + {' '.join(str(at.partition) for at in assigned)}")

    def on_partitions_revoked(self, revoked: Sequence[TopicPartition]) -> None:
        print(f"{self.name:>5} - {' '.join(str(at.partition) for at in revoked)}")

    async def read(self, bootstrap: str, topic: str, all_rows: Rows, *, own_max: int, all_max: int) -> None:
        """Until so many rows were handed out here, or in the whole group."""
        async with Consumer(bootstrap_servers=bootstrap, group_id="counting", auto_offset_reset="earliest") as consumer:
            consumer.subscribe([topic], listener=self)
            while self.rows.total() < own_max and len(all_rows) < all_max:
                for at, records in (await consumer.getmany(timeout_ms=100, max_records=500)).items():
                    locations = [(at.partition, record.offset) for record in records]
                    self.rows.update(locations)
                    all_rows.update(locations)
            await consumer.commit()  # what the last call has handed out is counted, too


async def write(bootstrap: str, topic: str, rows: Sequence[bytes]) -> None:
    """Rows of one day go to one partition, in order."""
    async with Producer(bootstrap) as producer:
        for start in range(0, len(rows), CHUNK_ROWS):
            values = rows[start : start + CHUNK_ROWS]
            await producer.send_batch(topic, values, [b"-".join(row.split(b",", 3)[:3]) for row in values])


async def main(bootstrap: str, topic: str, limit: int | None) -> None:
    rows, handed_out = read_flights(limit), Rows()
    async with AdminClient(bootstrap) as admin:
        if topic not in await admin.list_topics():
            await admin.create_topic(topic, partitions=PARTITIONS)
    first, *others = readers = [Reader("one"), Reader("two"), Reader("three")]
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(first.read(bootstrap, topic, handed_out, own_max=len(rows) // 10, all_max=len(rows)))
        for reader in others:
            tasks.create_task(reader.read(bootstrap, topic, handed_out, own_max=2 * len(rows), all_max=len(rows)))
        for reader in readers:
            await reader.has_partitions.wait()
        await write(bootstrap, topic, rows)
    for reader in readers:
        print(f"{reader.name:>5} was given {reader.rows.total():,} rows")
    print(f"{len(handed_out):,} of {len(rows):,} rows, {handed_out.total() - len(handed_out):,} of them again")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", metavar="URL", help="a running broker; default: one started for this")
    parser.add_argument("--topic", default="flights-of-a-group", help="default: %(default)s")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N rows")
    options = parser.parse_args()
    with ExitStack() as stack:
        address = options.bootstrap or stack.enter_context(LocalCluster()).bootstrap
        asyncio.run(main(address, options.topic, options.limit))
