"""Positions of a query: the next offset of each partition, and the id of each topic.

Spark stores them as JSON in its checkpoint and compares positions as *strings*: the same content in another order would
count as new data, again and again. So there is one canonical form, with everything sorted:

    {"@topic_ids": {"orders": "9f0c..."}, "orders": {"0": 123, "1": 45}}

This is the form of Spark's Kafka source plus the topic ids. A topic that was deleted and created again has the same
name and other records; without ids, a query would silently continue at the old offset. No topic can be called
`@topic_ids`, since `@` is not allowed in a name.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidelog.model.errors import InvalidRequest
from tidelog.model.ids import OFFSET_MAX, TopicPartition

TOPIC_IDS = "@topic_ids"


@dataclass(frozen=True, slots=True)
class Offsets:
    """The next offset to read in each partition. A missing partition has not been read yet."""

    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    @property
    def topics(self) -> list[str]:
        """The names of the topics with a partition in these offsets, sorted."""
        return sorted({partition.topic for partition in self.positions})

    def without(self, topics: Iterable[str]) -> Offsets:
        """Returns the offsets without these topics."""
        gone = set(topics)
        return Offsets(
            {partition: offset for partition, offset in self.positions.items() if partition.topic not in gone},
            {topic: topic_id for topic, topic_id in self.topic_ids.items() if topic not in gone},
        )

    def to_json(self) -> dict[str, dict[str, Any]]:
        """Returns the canonical form for `json.dumps`: equal positions give equal strings."""
        document: dict[str, dict[str, Any]] = {TOPIC_IDS: dict(sorted(self.topic_ids.items()))}
        for (topic, partition), offset in sorted(self.positions.items()):
            document.setdefault(topic, {})[str(partition)] = offset
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Mapping[str, Any]]) -> Offsets:
        """Parses the result of `to_json`, as returned by Spark. Raises `InvalidRequest` for anything else."""
        ids = document.get(TOPIC_IDS, {})
        topics = {topic: entries for topic, entries in document.items() if topic != TOPIC_IDS}
        if not all(isinstance(topic_id, str) for topic_id in ids.values()):
            raise InvalidRequest(f"{TOPIC_IDS} in the checkpoint must map topics to ids, not {ids}")
        return cls(parse_partitions(topics, lowest=0), dict(ids))


def parse_partitions(document: Any, *, lowest: int) -> dict[TopicPartition, int]:
    """Parses `{"topic": {"0": number}}`, the form of all options with a number per partition. Raises
    `InvalidRequest`."""
    numbers: dict[TopicPartition, int] = {}
    if not isinstance(document, Mapping):
        raise InvalidRequest(f'expected {{"topic": {{"0": 123}}}}, not {document!r}')
    for topic, entries in document.items():
        if not isinstance(entries, Mapping):
            raise InvalidRequest(f'topic {topic!r}: expected {{"0": 123}}, not {entries!r}')
        for partition, number in entries.items():
            if not (isinstance(partition, str) and partition.isascii() and partition.isdigit()):
                raise InvalidRequest(f"topic {topic!r}: {partition!r} is no partition number")
            if isinstance(number, bool) or not isinstance(number, int) or not lowest <= number <= OFFSET_MAX:
                raise InvalidRequest(f"{topic}-{partition}: {number!r} is not a number from {lowest} on")
            numbers[TopicPartition(topic, int(partition))] = number
    return numbers
