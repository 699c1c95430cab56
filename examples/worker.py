"""A worker that passes orders on to a web service: it tries again, puts aside what never succeeds, and stops in order.

What fails is tried again, each time a little later. An order that is never taken goes to `orders-dead`, with origin and
reason as headers. After a crash one may be delivered twice, and none is left out. SIGTERM lets it finish what it posts.

    tidelog topic create orders --partitions 3
    tidelog topic create orders-dead --config retention.ms=-1
    python examples/worker.py http://127.0.0.1:8000/orders
"""

import argparse
import asyncio
import logging
import signal
from contextlib import suppress

import aiohttp

from tidelog.consumer import CommitFailed, Consumer, ConsumerRecord
from tidelog.producer import Producer

PAUSES_S = (0, 0.1, 0.2, 0.4, 0.8, 1.6)  # before each try


class Worker:
    def __init__(self, url: str, session: aiohttp.ClientSession, producer: Producer) -> None:
        self.url, self.session, self.producer, self.stopping = url, session, producer, asyncio.Event()

    async def run(self, consumer: Consumer) -> None:
        while not self.stopping.is_set():
            for at, [record] in (await consumer.getmany(timeout_ms=500, max_records=1)).items():
                if await self.settle(record):
                    try:
                        await consumer.commit({at: record.offset + 1})
                    except CommitFailed as lost:
                        logging.warning("%s", lost)  # another worker has the partition, and gets the order, too

    async def settle(self, record: ConsumerRecord) -> bool:
        """Delivers an order or puts it aside; returns False if the worker is to stop before that is done."""
        for pause_s in PAUSES_S:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), pause_s)
            if self.stopping.is_set():
                return False
            if not (reason := await self.deliver(record)):
                return True
        origin = f"{record.topic}-{record.partition}@{record.offset}"
        logging.warning("put aside %s: %s", origin, reason)
        headers = [("origin", origin.encode()), ("reason", reason.encode())]
        await self.producer.send_and_wait("orders-dead", record.value, record.key, headers=headers)
        return True

    async def deliver(self, record: ConsumerRecord) -> str:
        """Posts an order; by its key the service knows one that comes again. Returns what went wrong."""
        headers = {"Content-Type": "application/json", "Idempotency-Key": f"{record.partition}-{record.offset}"}
        try:
            async with self.session.post(self.url, data=record.value, headers=headers) as answer:
                return "" if answer.ok else f"{answer.status} {answer.reason}"
        except (aiohttp.ClientError, TimeoutError) as error:
            return f"{type(error).__name__}: {error}"


async def main(bootstrap: str, url: str) -> None:
    consumer = Consumer(
        "orders", bootstrap_servers=bootstrap, group_id="worker", auto_offset_reset="earliest", enable_auto_commit=False
    )
    timeout = aiohttp.ClientTimeout(total=10)
    async with aiohttp.ClientSession(timeout=timeout) as session, Producer(bootstrap) as producer, consumer:
        worker = Worker(url, session, producer)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, worker.stopping.set)
        await worker.run(consumer)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Pass orders on to a web service.")
    parser.add_argument("url", help="where orders are posted")
    parser.add_argument("--bootstrap", default="http://127.0.0.1:8082", help="any brokers, comma-separated")
    asyncio.run(main(**vars(parser.parse_args())))
