"""The body of a request with record batches of many partitions: a table of the partitions, then their batches.

    count            uint32, big endian, as all numbers here
    count rows of    topic_bytes uint16, the topic in UTF-8, partition uint32, batches_bytes uint32
    batches          of the first row, of the second, ...: whole record batches, one behind the other

The table comes first, so that a sender writes it once and its batches without a copy, and a receiver knows all
partitions before it reads a batch. A partition occurs once: its batches are one request, with one outcome.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from tidelog.model.errors import InvalidRequest, UnprocessableBody
from tidelog.model.ports import Buffer

PARTITION_BATCHES_TYPE: Final = "application/vnd.tidelog.partition-batches"

_COUNT: Final = struct.Struct(">I")
_TOPIC_BYTES: Final = struct.Struct(">H")
_REST: Final = struct.Struct(">II")


class PartitionBatches(NamedTuple):
    """The batches for one partition; `data` is a part of the body, not parsed yet."""

    topic: str
    partition: int
    data: memoryview


def batch_table(rows: Iterable[tuple[str, int, int]]) -> bytes:
    """Returns the table for rows of (topic, partition, size in bytes). The batches follow it in the same order."""
    parts: list[bytes] = []
    for topic, partition, size in rows:
        name = topic.encode()
        parts += (_TOPIC_BYTES.pack(len(name)), name, _REST.pack(partition, size))
    return b"".join((_COUNT.pack(len(parts) // 3), *parts))


def split_partitions(body: Buffer, partitions_max: int) -> list[PartitionBatches]:
    """Splits a body into the batches of each partition, in the order of its table.

    Raises `InvalidRequest` if the table or a length in it does not fit the body, and `UnprocessableBody` if there is no
    partition, a partition occurs twice, or there are more than `partitions_max`. The batches themselves are not
    checked.
    """
    count = _count(body)
    if not 0 < count <= partitions_max:
        raise UnprocessableBody(
            f"batches for {count} partitions: send 1 to {partitions_max} in a request (http.batches.partitions.max)"
        )
    rows, position = _rows(body, count)
    _refuse_repeated(rows)
    view = memoryview(body)
    entries: list[PartitionBatches] = []
    for number, (topic, partition, size) in enumerate(rows):
        end = position + size
        if end > len(body):
            raise InvalidRequest(
                f"entry {number} says {size} bytes of batches, and {len(body) - position} are left: "
                "the body is cut short"
            )
        entries.append(PartitionBatches(topic, partition, view[position:end]))
        position = end
    if position != len(body):
        raise InvalidRequest(f"{len(body) - position} bytes are left behind the batches of the last entry")
    return entries


def _count(body: Buffer) -> int:
    if len(body) < _COUNT.size:
        raise InvalidRequest(f"the body has {len(body)} bytes: it begins with how many partitions it is for, in four")
    count: int = _COUNT.unpack_from(body)[0]
    return count


def _rows(body: Buffer, count: int) -> tuple[list[tuple[str, int, int]], int]:
    """Returns the rows of the table, and the position at which the table ends."""
    rows: list[tuple[str, int, int]] = []
    position = _COUNT.size
    for number in range(count):
        try:
            (name_bytes,) = _TOPIC_BYTES.unpack_from(body, position)
            start = position + _TOPIC_BYTES.size
            position = start + name_bytes
            partition, size = _REST.unpack_from(body, position)
            rows.append((str(body[start:position], "utf-8"), partition, size))
        except struct.error:
            raise InvalidRequest(f"the table ends in entry {number} of {count}: the body is cut short") from None
        except UnicodeDecodeError:
            raise InvalidRequest(f"the topic of entry {number} is not UTF-8") from None
        position += _REST.size
    return rows, position


def _refuse_repeated(rows: list[tuple[str, int, int]]) -> None:
    seen: set[tuple[str, int]] = set()
    for topic, partition, _ in rows:
        if (topic, partition) in seen:
            raise UnprocessableBody(
                f"topic {topic!r} partition {partition} stands in the request twice; put its batches behind each other"
            )
        seen.add((topic, partition))
