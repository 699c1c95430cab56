"""A process that consumes by key, to be killed; its output says what it is assigned, starts and finishes."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Sequence

from tidelog.consumer import Consumer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition


def say(what: str, partition: int, offset: int = -1) -> None:
    """Writes a line at once, so that a kill cannot take it back."""
    os.write(1, f"{what} {partition} {offset}\n".encode())


class Saying(ConsumerRebalanceListener):
    def on_partitions_assigned(self, assigned: Sequence[TopicPartition]) -> None:
        for _, partition in assigned:
            say("assigned", partition)


async def handle(record: ConsumerRecord) -> None:
    say("started", record.partition, record.offset)
    slow_s = 0.05 if record.offset % 37 == 0 else 0.002
    await asyncio.sleep(random.random() * slow_s)
    say("finished", record.partition, record.offset)


async def main(bootstrap: str, topic: str, way: str) -> None:
    consumer = Consumer(
        bootstrap_servers=bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
        order="key",
        auto_commit_interval_ms=5,
        session_timeout_ms=1_000 if way == "member" else 45_000,
        fetch_max_wait_ms=50,
    )
    async with consumer:
        if way == "member":
            consumer.subscribe([topic], listener=Saying())
        else:
            consumer.assign([TopicPartition(topic, partition) for partition in range(2)])
        await consumer.run(handle, workers=8)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
