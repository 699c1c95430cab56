"""The program that the suite tests: how much was ordered of each item, by reading a topic to its end."""

import json
from collections import Counter

from tidelog.consumer import Consumer, TopicPartition


async def totals(bootstrap: str, topic: str) -> Counter[str]:
    """Returns the totals of all orders that are in the topic now."""
    counts = Counter[str]()
    async with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        partitions = [TopicPartition(topic, number) for number in await consumer.partitions_for_topic(topic)]
        for at, end in (await consumer.end_offsets(partitions)).items():
            consumer.assign([at])
            while await consumer.position(at) < end:
                for record in (await consumer.getmany(timeout_ms=1000)).get(at, []):
                    order = json.loads(record.value or b"")
                    counts[order["item"]] += order["count"]
    return counts
