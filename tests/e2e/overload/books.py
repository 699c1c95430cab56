"""Records with numbers, what became of each, and whether a topic has each that was acknowledged exactly once.

A record is never sent twice: a client that tries again takes another number. So nothing may be there twice, whatever
the answers were, and of what was refused (503 and the like) nothing may be there at all.
"""

from __future__ import annotations

import struct
import time
import urllib.request
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from tests.e2e.overload.wire import Place, head, is_definite, named
from tidelog.model.batch_codec import encode_batch
from tidelog.model.batch_header import HEADER_BYTES, iter_batches, seal_spread

NUMBER: Final = struct.Struct(">Q")
JOB_SHIFT: Final = 40
"""Each job numbers its records from `job << JOB_SHIFT` on."""
READ_BYTES: Final = 32 << 20
MEDIA: Final = "Content-Type: application/vnd.tidelog.batches"


@dataclass(frozen=True, slots=True)
class Target:
    """A partition, and where its leader listens."""

    topic: str
    partition: int
    place: Place

    def head(self, body: str, query: str = "acks=all") -> bytes:
        """Returns the head of a produce; `body` is the header that says how long the body is."""
        path = f"/topics/{self.topic}/partitions/{self.partition}/batches?{query}"
        return head("POST", self.place, path, MEDIA, body)


class Numbered:
    """Batches of so many bytes, or a few less, each of one record whose value begins with a number."""

    def __init__(self, batch_bytes: int) -> None:
        value_bytes = batch_bytes
        while (over := len(self._made(value_bytes)) - batch_bytes) > 0:
            value_bytes -= over
        whole = self._made(value_bytes)
        self._at = len(whole) - 1 - value_bytes  # behind the value is the number of headers: 0, one byte
        self._first = whole[: self._at + NUMBER.size]
        self._rest = memoryview(bytes(whole[self._at + NUMBER.size :]))
        self.size = len(whole)

    @staticmethod
    def _made(value_bytes: int) -> bytearray:
        return encode_batch([(int(time.time() * 1000), None, bytes(value_bytes))])

    def pieces(self, number: int) -> tuple[bytes, memoryview]:
        """Returns the batch with that number; the second part is the same for all."""
        NUMBER.pack_into(self._first, self._at, number)
        seal_spread(self._first, self._rest)
        return bytes(self._first), self._rest

    def whole(self, number: int) -> bytes:
        """Returns the same in one piece: for small ones."""
        return b"".join(self.pieces(number))


@dataclass(slots=True)
class Ledger:
    """The numbers that were sent to a topic, by what was said of them."""

    acknowledged: array[int] = field(default_factory=lambda: array("Q"))
    refused: array[int] = field(default_factory=lambda: array("Q"))
    unknown: array[int] = field(default_factory=lambda: array("Q"))
    outcomes: Counter[int] = field(default_factory=Counter)

    def add(self, number: int, outcome: int) -> None:
        """Notes what became of a record."""
        self.outcomes[outcome] += 1
        if outcome == 200:
            self.acknowledged.append(number)
        elif is_definite(outcome):
            self.refused.append(number)
        else:
            self.unknown.append(number)

    def merge(self, other: Ledger) -> None:
        """Takes in what another job noted."""
        self.acknowledged += other.acknowledged
        self.refused += other.refused
        self.unknown += other.unknown
        self.outcomes += other.outcomes

    def told(self) -> str:
        """Returns the outcomes as people read them."""
        return ", ".join(f"{count:,} x {named(outcome)}" for outcome, count in sorted(self.outcomes.items())) or "none"

    def compare(self, numbers: Iterable[int]) -> dict[str, int]:
        """Returns how many records are not as they were said to be; `numbers` are those that are there."""
        found = Counter(numbers)
        known = set(chain(self.acknowledged, self.refused, self.unknown))
        return {
            "lost": sum(found[number] == 0 for number in self.acknowledged),
            "twice": sum(count > 1 for count in found.values()),
            "refused and there": sum(number in found for number in self.refused),
            "never sent": sum(number not in known for number in found),
        }


def read_back(url: str, topic: str, partitions: int) -> Iterator[int]:
    """Yields the numbers that a topic has. Raises `OSError`."""
    for partition in range(partitions):
        offset = 0
        while True:
            query = f"offset={offset}&max_bytes={READ_BYTES}"
            address = f"{url}/topics/{topic}/partitions/{partition}/batches?{query}"
            with urllib.request.urlopen(address, timeout=60) as answer:
                data, end = answer.read(), int(answer.headers["Tidelog-High-Watermark"])
            for batch in iter_batches(data):
                yield number_of(memoryview(batch.data))
                offset = batch.header.next_offset
            if offset >= end:
                break


def number_of(batch: memoryview) -> int:
    """Returns the number in a batch of one record, of which only the first bytes are looked at."""
    at = _behind_varint(batch, HEADER_BYTES) + 1  # length, attributes
    for _ in range(3):
        at = _behind_varint(batch, at)  # timestamp delta, offset delta, the key's length, which is -1
    at = _behind_varint(batch, at)  # the value's length
    return int(NUMBER.unpack_from(batch, at)[0])


def _behind_varint(batch: memoryview, at: int) -> int:
    while batch[at] & 0x80:
        at += 1
    return at + 1
