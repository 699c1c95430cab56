"""Compares two producers in turn: aiokafka's on any Kafka-compatible server, tidelog's on a tidelog broker.

    python bench/compare_aiokafka.py --kafka 127.0.0.1:9092 [--tidelog http://127.0.0.1:8082]

Both run in this process, on the same event loop, one after the other and several times over, so that whatever else the
machine does hits both alike; medians are printed. Without `--tidelog` a broker is started for the run. The Kafka side
needs automatic topic creation, or topics named `bench-100` and `bench-1000`.

What is compared is not only clients: tidelog acknowledges after fsync, and most Kafka servers do not.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import uvloop
from aiokafka import AIOKafkaProducer

from tidelog.admin import AdminClient
from tidelog.bench.payload import DISTINCT, make_values
from tidelog.producer import Producer
from tidelog.testing import LocalCluster

SIZES = {100: 200_000, 1000: 50_000}
"""Bytes of a value, and how many are sent."""

Send = Callable[[str, bytes], Awaitable[object]]
Finish = Callable[[], Awaitable[None]]


def main() -> None:
    """Parses the command line and runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kafka", required=True, metavar="HOST:PORT", help="a Kafka-compatible server")
    parser.add_argument("--tidelog", metavar="URL", help="a tidelog broker (default: one is started)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each side runs (default: 5)")
    parser.add_argument("--acks", default="all", choices=["all", "1"], help="asked of both (default: all)")
    arguments = parser.parse_args()
    uvloop.run(compare(arguments.kafka, arguments.tidelog, arguments.rounds, arguments.acks))


async def compare(kafka: str, tidelog: str | None, rounds: int, acks: str) -> None:
    """Runs both sides in turn for each size and prints the medians."""
    async with AsyncExitStack() as stack:
        if tidelog is None:
            tidelog = (await stack.enter_async_context(LocalCluster())).bootstrap
        async with AdminClient(tidelog) as admin:
            existing = await admin.list_topics()
            for size in SIZES:
                if f"bench-{size}" not in existing:
                    await admin.create_topic(f"bench-{size}")
        theirs = await stack.enter_async_context(
            AIOKafkaProducer(
                bootstrap_servers=kafka, acks=acks if acks == "all" else int(acks), linger_ms=5, max_batch_size=65536
            )
        )
        ours = await stack.enter_async_context(Producer(tidelog, acks=acks))
        print(f"{'':12} {'aiokafka':>28} {'tidelog':>28}")
        for size, count in SIZES.items():
            values = make_values("random", size)
            seconds: tuple[list[float], list[float]] = ([], [])
            for _ in range(rounds):
                seconds[0].append(await timed(theirs.send, theirs.flush, size, count, values))
                seconds[1].append(await timed(ours.send, ours.flush, size, count, values))
            print(f"{size:>6} bytes {shown(size, count, seconds[0]):>28} {shown(size, count, seconds[1]):>28}")


async def timed(send: Send, finish: Finish, size: int, count: int, values: list[bytes]) -> float:
    """Seconds from the first `send` to the last acknowledgement."""
    topic = f"bench-{size}"
    started_s = time.perf_counter()
    for number in range(count):
        await send(topic, values[number % DISTINCT])
    await finish()
    return time.perf_counter() - started_s


def shown(size: int, count: int, seconds: list[float]) -> str:
    """Records and megabytes per second of the median run."""
    median = statistics.median(seconds)
    return f"{count / median:,.0f}/s {count * size / median / 1e6:.0f} MB/s"


if __name__ == "__main__":
    main()
