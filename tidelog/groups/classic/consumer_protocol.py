"""Decoder of the subscriptions and assignments that consumers exchange through the coordinator, for display only.

To the coordinator they are opaque bytes. If they are not Kafka's `ConsumerProtocolSubscription` or
`ConsumerProtocolAssignment` (all versions begin alike), nothing is shown.
"""

from __future__ import annotations

import struct
from typing import Final

from tidelog.model.groups import TopicPartitions, grouped

CONSUMER: Final = "consumer"
"""Protocol type of consumers. Kafka Connect workers, for example, use another."""
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


class _Malformed(Exception):
    pass


class _Reader:
    """Sequential reader of big-endian values. Raises `_Malformed` where the bytes are too short."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, form: struct.Struct) -> int:
        return int(form.unpack(self._take(form.size))[0])

    def text(self) -> str:
        try:
            return self._take(self.number(_INT16)).decode()
        except UnicodeDecodeError:
            raise _Malformed from None

    def count(self, least_size: int) -> int:
        """Reads the number of elements of an array, each of which takes at least `least_size` bytes."""
        count = self.number(_INT32)
        # The bytes are a client's own: without this check four of them could make the coordinator reserve gigabytes.
        if not 0 <= count * least_size <= len(self._data) - self._at:
            raise _Malformed
        return count

    def _take(self, size: int) -> bytes:
        end = self._at + size
        # A null text has the length -1: taken as it is, it would have the reader go back.
        if size < 0 or end > len(self._data):
            raise _Malformed
        taken, self._at = self._data[self._at : end], end
        return taken


def subscribed_topics(metadata: bytes) -> tuple[str, ...]:
    """Returns the topics in a consumer's subscription, sorted; empty if it cannot be decoded."""
    try:
        reader = _Reader(metadata)
        reader.number(_INT16)  # the version
        return tuple(sorted({reader.text() for _ in range(reader.count(_INT16.size))}))
    except _Malformed:
        return ()


def assigned_partitions(assignment: bytes) -> tuple[TopicPartitions, ...]:
    """Returns the partitions in a consumer's assignment; empty if it cannot be decoded."""
    partitions = list[tuple[str, int]]()
    try:
        reader = _Reader(assignment)
        reader.number(_INT16)  # the version
        for _ in range(reader.count(_INT16.size + _INT32.size)):
            topic = reader.text()
            partitions += [(topic, reader.number(_INT32)) for _ in range(reader.count(_INT32.size))]
    except _Malformed:
        return ()
    return grouped(partitions)
