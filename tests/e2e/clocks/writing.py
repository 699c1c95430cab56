"""A writer that goes on while clocks move, and what became of each record: where it is, and which time it got.

There are topics of both commit protocols, with the producer's time and with the broker's. Their records may be deleted
when they are half an hour old, which none gets, and they have small segments, so that there is something to delete.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tidelog.admin import AdminClient
from tidelog.consumer import Consumer, TopicPartition
from tidelog.model.cluster import PROTOCOLS
from tidelog.model.errors import TidelogError
from tidelog.producer import Producer

OWN, BROKERS = "CreateTime", "LogAppendTime"
RETENTION_MS: Final = 30 * 60_000
SEGMENT_BYTES: Final = 16_384
EVERY_S: Final = 0.005
FILLING: Final = "." * 900
READ_S_MAX: Final = 60.0


class Sent(NamedTuple):
    """A record that was acknowledged, and this machine's wall time before and after."""

    value: bytes
    sent_ms: int
    acknowledged_ms: int


@dataclass(slots=True)
class Book:
    """The records of a partition, by their offsets."""

    partition: TopicPartition
    times: str
    """Whose time they have."""
    sent: dict[int, Sent] = field(default_factory=dict)
    missing: int = 0
    off_ms_max: int = 0
    """How far a record's time is outside the time it took to write it, at most."""

    def check(self, found: dict[int, tuple[bytes | None, int]]) -> None:
        """Holds all records that are there, with their times, against what was told."""
        for offset, sent in self.sent.items():
            value, timestamp_ms = found.get(offset, (None, 0))
            if value != sent.value:
                self.missing += 1
            else:
                early_ms, late_ms = sent.sent_ms - timestamp_ms, timestamp_ms - sent.acknowledged_ms
                self.off_ms_max = max(self.off_ms_max, early_ms, late_ms)


class Writer:
    """Sends a record to one partition after the other, until it is told to stop."""

    def __init__(self, bootstrap: str, nodes: int) -> None:
        self.books = [
            Book(TopicPartition(_topic(protocol, times), number), times)
            for protocol in PROTOCOLS
            for times in (OWN, BROKERS)
            for number in range(nodes)
        ]
        self.refused: Counter[str] = Counter()
        self._bootstrap, self._nodes = bootstrap, nodes
        self._is_over = asyncio.Event()

    async def create(self, admin: AdminClient) -> None:
        """Makes the topics. Each broker leads a partition of each."""
        nodes = range(1, self._nodes + 1)
        replicas = {at: (*nodes[at:], *nodes[:at]) for at in range(self._nodes)}
        for protocol in PROTOCOLS:
            for times in (OWN, BROKERS):
                configs = {
                    "commit.protocol": protocol,
                    "message.timestamp.type": times,
                    "retention.ms": str(RETENTION_MS),
                    "segment.bytes": str(SEGMENT_BYTES),
                }
                await admin.create_topic(_topic(protocol, times), replicas_assignments=replicas, configs=configs)

    def stop(self) -> None:
        """Ends `write`, once all is answered."""
        self._is_over.set()

    async def write(self) -> None:
        """Writes until it is told to stop."""
        async with Producer(self._bootstrap, linger_ms=0) as producer, asyncio.TaskGroup() as tasks:
            number = 0
            while not self._is_over.is_set():
                tasks.create_task(self._send(producer, self.books[number % len(self.books)], number))
                number += 1
                await asyncio.sleep(EVERY_S)

    async def _send(self, producer: Producer, book: Book, number: int) -> None:
        value, sent_ms = f"{number}{FILLING}".encode(), _now_ms()
        try:
            place = await producer.send_and_wait(book.partition.topic, value, partition=book.partition.partition)
        except TidelogError as error:
            self.refused[type(error).__name__] += 1
            return
        assert place.offset is not None
        book.sent[place.offset] = Sent(value, sent_ms, _now_ms())

    async def read_back(self) -> None:
        """Reads all that there is, and notes it in the books."""
        for book in self.books:
            async with Consumer(bootstrap_servers=self._bootstrap, auto_offset_reset="earliest") as consumer:
                consumer.assign([book.partition])
                end = (await consumer.end_offsets([book.partition]))[book.partition]
                found: dict[int, tuple[bytes | None, int]] = {}
                until_s = time.monotonic() + READ_S_MAX
                while await consumer.position(book.partition) < end and time.monotonic() < until_s:
                    records = (await consumer.getmany(timeout_ms=1_000)).get(book.partition, [])
                    found |= {record.offset: (record.value, record.timestamp_ms) for record in records}
            book.check(found)


def _topic(protocol: str, times: str) -> str:
    return f"{protocol}-{times}"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
