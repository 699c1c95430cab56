"""The load: chunks of records to each partition of a topic of each commit protocol, and what became of every record.

A closed loop measures what the cluster takes: `ROUNDS` chunks of each partition are under way, and the next one goes
out as soon as one is acknowledged. An open loop sends at a given pace, whatever becomes of what was sent before.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import Counter
from collections.abc import Sequence
from typing import Final

from tidelog.consumer import Consumer, TopicPartition
from tidelog.model.cluster import PROTOCOLS
from tidelog.model.errors import TidelogError
from tidelog.producer import Producer

CHUNK: Final = 20
ROUNDS: Final = 4
NUMBER_BYTES: Final = 8
VALUE: Final = bytes(92)
"""What follows a record's number."""
UNANSWERED: Final = -1
ANYWHERE: Final = -2
"""The offset of a record that was acknowledged so late that the broker does not know any more where it is."""
WHERE_TOLD, ELSEWHERE = 1, 2
REPEAT_S: Final = 0.1
READ_S_MAX: Final = 60.0
"""A reader that gets nothing for so long is told that there is nothing more."""


class Book:
    """The records of one partition, by their numbers, and how long nothing was acknowledged."""

    def __init__(self, topic: str, partition: int) -> None:
        self.topic, self.partition = topic, partition
        self.offsets = array("q")
        """The offset of each record that was acknowledged, by its number."""
        self.gap_s_max = 0.0
        self.acknowledged = 0
        self.twice = 0
        self._seen = bytearray()
        self._acknowledged_s = time.monotonic()

    def take(self) -> tuple[int, list[bytes]]:
        """Returns the number of the first record of a new chunk, and the chunk."""
        first = len(self.offsets)
        self.offsets.extend([UNANSWERED] * CHUNK)
        return first, [number.to_bytes(NUMBER_BYTES, "big") + VALUE for number in range(first, first + CHUNK)]

    def acknowledge(self, first: int, offsets: Sequence[int]) -> None:
        """Notes that a chunk was acknowledged."""
        self.offsets[first : first + len(offsets)] = array("q", offsets)
        self.acknowledged += len(offsets)
        self.note_gap()
        self._acknowledged_s = time.monotonic()

    def note_gap(self) -> None:
        """Counts the time since the last acknowledgement, which may not be over."""
        self.gap_s_max = max(self.gap_s_max, time.monotonic() - self._acknowledged_s)

    def begin(self) -> None:
        """Begins to look for the longest time without an acknowledgement."""
        self.gap_s_max, self._acknowledged_s = 0.0, time.monotonic()

    def see(self, offset: int, number: int) -> None:
        """Notes a record that is there."""
        if not self._seen:
            self._seen = bytearray(len(self.offsets))
        self.twice += self._seen[number] > 0
        self._seen[number] = WHERE_TOLD if self.offsets[number] in (offset, UNANSWERED, ANYWHERE) else ELSEWHERE

    @property
    def lost(self) -> int:
        """Returns how many records were acknowledged and are not where it was told."""
        seen = self._seen or bytes(len(self.offsets))
        held = zip(self.offsets, seen, strict=True)
        return sum(offset != UNANSWERED and state != WHERE_TOLD for offset, state in held)


class Load:
    """A producer, and the books of all partitions."""

    def __init__(self, bootstrap: str, partitions: int) -> None:
        self.books = [Book(topic, number) for topic in PROTOCOLS for number in range(partitions)]
        self.refused: Counter[str] = Counter()
        """Records that the producer has given up, by the error."""
        self.behind_s_max = 0.0
        """How far the open loop was behind its own time."""
        self._bootstrap = bootstrap

    async def closed(self, producer: Producer, seconds: float) -> float:
        """Sends as fast as is acknowledged. Returns records per second."""
        end_s, before = time.monotonic() + seconds, self._acknowledged
        async with asyncio.TaskGroup() as tasks:
            for book in self.books * ROUNDS:
                tasks.create_task(self._repeat(producer, book, end_s))
        return (self._acknowledged - before) / seconds

    async def open(self, producer: Producer, records_per_s: float, seconds: float) -> None:
        """Sends at that pace, and waits for all answers."""
        begin_s, count = time.monotonic(), round(records_per_s * seconds / CHUNK)
        for book in self.books:
            book.begin()
        async with asyncio.TaskGroup() as tasks:
            for number in range(count):
                due_s = begin_s + number * CHUNK / records_per_s
                now_s = time.monotonic()
                self.behind_s_max = max(self.behind_s_max, now_s - due_s)
                await asyncio.sleep(max(0.0, due_s - now_s))
                tasks.create_task(self._send(producer, self.books[number % len(self.books)]))
            for book in self.books:
                book.note_gap()

    @property
    def _acknowledged(self) -> int:
        return sum(book.acknowledged for book in self.books)

    async def _repeat(self, producer: Producer, book: Book, end_s: float) -> None:
        while time.monotonic() < end_s:
            if not await self._send(producer, book):
                await asyncio.sleep(REPEAT_S)

    async def _send(self, producer: Producer, book: Book) -> bool:
        first, values = book.take()
        try:
            deliveries = await producer.send_batch(book.topic, values, partition=book.partition)
            deliveries.hurry()
            places = await deliveries
        except TidelogError as error:
            self.refused[type(error).__name__] += len(values)
            return False
        book.acknowledge(first, [ANYWHERE if place.offset is None else place.offset for place in places])
        return True

    async def read_back(self) -> None:
        """Reads all that there is, and notes it in the books."""
        for book in self.books:
            await self._read(book, TopicPartition(book.topic, book.partition))

    async def _read(self, book: Book, partition: TopicPartition) -> None:
        async with Consumer(bootstrap_servers=self._bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([partition])
            end = (await consumer.end_offsets([partition]))[partition]
            read_s = time.monotonic()
            while await consumer.position(partition) < end and time.monotonic() < read_s + READ_S_MAX:
                for records in (await consumer.getmany(timeout_ms=1_000)).values():
                    read_s = time.monotonic()
                    for record in records:
                        assert record.value is not None
                        book.see(record.offset, int.from_bytes(record.value[:NUMBER_BYTES], "big"))
