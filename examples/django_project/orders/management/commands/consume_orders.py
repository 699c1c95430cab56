"""The command `consume_orders`: one consumer of a group, at least once, until SIGTERM or Ctrl-C.

Rows are in the database before their offsets are committed: after a crash some orders come again, and change nothing,
since their places are known. A record that is no order ends the command; `examples/worker.py` puts such ones aside.
"""

import asyncio
import json
import signal
from collections.abc import Sequence

from django.core.management.base import BaseCommand, CommandParser
from orders.models import Order

from tidelog.consumer import CommitFailed, Consumer, ConsumerRecord


async def keep(records: Sequence[ConsumerRecord]) -> None:
    """Makes a row of each order, unless there is one for its place."""
    rows = [Order(partition=at.partition, offset=at.offset, **json.loads(at.value or b"")) for at in records]
    await Order.objects.abulk_create(rows, ignore_conflicts=True)


class Command(BaseCommand):
    """Start it several times, and the processes share the partitions."""

    help = "Keep the orders of the topic `orders` as rows, until SIGTERM or Ctrl-C."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declares the options."""
        parser.add_argument("--bootstrap", default="http://127.0.0.1:8082", help="any brokers, comma-separated")
        parser.add_argument("--group", default="django", help="who shares the partitions; default: %(default)s")

    def handle(self, *, bootstrap: str, group: str, **_: object) -> None:
        """Runs the command."""
        asyncio.run(self.consume(bootstrap, group))

    async def consume(self, bootstrap: str, group: str) -> None:
        """Keeps what comes, then commits it; ends between two turns."""
        stopping = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopping.set)
        async with Consumer(
            "orders",
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            while not stopping.is_set():
                for at, records in (await consumer.getmany(timeout_ms=500, max_records=500)).items():
                    await keep(records)
                    self.tell(f"kept {len(records)} of {at.topic}-{at.partition}")
                    try:
                        await consumer.commit({at: records[-1].offset + 1})
                    except CommitFailed as lost:
                        self.stderr.write(str(lost))  # another process has the partition now, and keeps them again
        self.tell("stopped")

    def tell(self, text: str) -> None:
        """Writes a line at once, also where it goes to a file."""
        self.stdout.write(text)
        self.stdout.flush()
