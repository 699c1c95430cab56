"""The books of one partition: what was sent, what was acknowledged, and what each reader has found since.

An acknowledged record has to be at the offset that was told, on the leader and on each replica, and nowhere else. One
that was sent and never answered may be there, once. Nothing else may be there at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple


class Wrong(StrEnum):
    """The ways in which a record can be wrong, the worst first."""

    ALIEN = "was never sent"
    CHANGED = "is not the record that was acknowledged there"
    LOST = "is passed over"
    GIVEN = "was given to another record"
    TWICE = "has a record that is elsewhere, too"
    UNREAD = "cannot be read"


class Finding(NamedTuple):
    """The fault found at one offset, and the broker that showed it."""

    wrong: Wrong
    topic: str
    partition: int
    offset: int
    said_by: str

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}: offset {self.offset} {self.wrong}, as {self.said_by} says"


class Book:
    """The records of one partition."""

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.findings: list[Finding] = []
        self.last_offset = -1
        """The highest offset of an acknowledged record."""
        self.acknowledged: dict[int, str] = {}
        self._sent = 0
        self._offsets: dict[str, int] = {}

    def next_value(self) -> str:
        """Returns the next record to be sent."""
        self._sent += 1
        return f"{self.topic}.{self.partition}.{self._sent}.{'x' * (self._sent * 37 % 120)}"

    def acknowledge(self, offset: int, value: str) -> None:
        """Notes an acknowledgement."""
        if offset in self.acknowledged:
            self.find(Wrong.GIVEN, offset, "an acknowledgement")
        elif self._offsets.setdefault(value, offset) != offset:
            self.find(Wrong.TWICE, offset, "an acknowledgement")
        self.acknowledged[offset] = value
        self.last_offset = max(self.last_offset, offset)

    def look(self, begin: int, found: Iterable[tuple[int, str]], reader: str) -> int:
        """Notes what a reader shows from `begin` on, in order. Returns the offset that it shows next."""
        for offset, value in found:
            for passed in range(begin, offset):
                if passed in self.acknowledged:
                    self.find(Wrong.LOST, passed, reader)
            if not self._is_sent(value):
                self.find(Wrong.ALIEN, offset, reader)
            elif self.acknowledged.get(offset, value) != value:
                self.find(Wrong.CHANGED, offset, reader)
            elif self._offsets.setdefault(value, offset) != offset:
                self.find(Wrong.TWICE, offset, reader)
            begin = offset + 1
        return begin

    def find(self, wrong: Wrong, offset: int, said_by: str) -> None:
        """Notes that something is wrong."""
        self.findings.append(Finding(wrong, self.topic, self.partition, offset, said_by))

    def _is_sent(self, value: str) -> bool:
        topic, partition, number, _ = value.split(".")
        return (topic, int(partition)) == (self.topic, self.partition) and 0 < int(number) <= self._sent
