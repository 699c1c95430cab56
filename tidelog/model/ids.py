"""Identifiers that must not be mixed up: each is its own type for the checker, an int or str at run time.

Offsets that end a range (`log_end_offset`, `high_watermark`, `end`) are exclusive: the *next* offset.
"""

from __future__ import annotations

from typing import NamedTuple, NewType

NodeId = NewType("NodeId", int)
"""A broker's number in its cluster (Kafka's `node.id`)."""

TopicId = NewType("TopicId", str)
"""Topic id: 32 hexadecimal digits, made by the controller. Directories are named by it, so a topic name never becomes a
path."""

ProducerId = NewType("ProducerId", int)
"""Id of an idempotent producer; -1 is none. Ids made from idempotency keys have bit 62 set."""

OFFSET_MAX = 2**63 - 1
NO_PRODUCER = ProducerId(-1)
KEYED_PRODUCER_BIT = 1 << 62


class TopicPartition(NamedTuple):
    """A partition by its topic's name, as clients know it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class PartitionId(NamedTuple):
    """A partition by its topic's id, as logs and brokers know it. A recreated topic has another id."""

    topic_id: TopicId
    partition: int

    def __str__(self) -> str:
        return f"{self.topic_id}/{self.partition}"
