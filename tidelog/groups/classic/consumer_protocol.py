"""Decoder of the subscriptions and assignments that consumers exchange through the coordinator, for display only.

To the coordinator they are opaque bytes. If they are not Kafka's `ConsumerProtocolSubscription` or
`ConsumerProtocolAssignment` (all versions begin alike), or have more than 20,000 entries, nothing is shown.
"""

from __future__ import annotations

from typing import Final

from tidelog.model.groups import TopicPartitions, grouped
from tidelog.model.kafka_wire import Malformed, Reader

CONSUMER: Final = "consumer"
"""Protocol type of consumers. Kafka Connect workers, for example, use another."""
_TEXT_BYTES_MIN: Final = 2
_PARTITION_BYTES: Final = 4


def subscribed_topics(metadata: bytes) -> tuple[str, ...]:
    """Returns the topics in a consumer's subscription, sorted; empty if it cannot be decoded."""
    try:
        reader = _begun(metadata)
        count = reader.array(_TEXT_BYTES_MIN, is_flexible=False)
        return tuple(sorted({reader.string(is_flexible=False) for _ in range(count)}))
    except Malformed:
        return ()


def assigned_partitions(assignment: bytes) -> tuple[TopicPartitions, ...]:
    """Returns the partitions in a consumer's assignment; empty if it cannot be decoded."""
    partitions = list[tuple[str, int]]()
    try:
        reader = _begun(assignment)
        for _ in range(reader.array(_TEXT_BYTES_MIN + _PARTITION_BYTES, is_flexible=False)):
            topic = reader.string(is_flexible=False)
            count = reader.array(_PARTITION_BYTES, is_flexible=False)
            partitions += [(topic, reader.int32()) for _ in range(count)]
    except Malformed:
        return ()
    return grouped(partitions)


def _begun(data: bytes) -> Reader:
    reader = Reader(memoryview(data))
    reader.int16()  # the version
    return reader
