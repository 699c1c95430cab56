"""The books note what became of each record of a partition, and what the members of a group have read and owned.

A writer numbers its records per partition, so a log that is read back tells what is lost, there twice, or out of order.
A member claims the partitions that it holds in a generation (KIP-848: in its epoch), again and again. Whoever claims
what another one has claimed since, in the same generation, is a fault. One after the other may: a member's epoch is the
new one while it still gives up what another is given then (`tidelog.groups.reconcile`). Two owners in different
generations are what a member cannot help that was cut off.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

GAP_S_MIN: Final = 0.05
"""Shorter times without an acknowledgement are not remembered."""
UNKNOWN: Final = -1
"""The offset of a record that was acknowledged so late that the broker does not know any more where it is."""


class At(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class Gap(NamedTuple):
    """A time without an acknowledgement, on the clock `time.monotonic()`."""

    begin_s: float
    end_s: float

    @property
    def seconds(self) -> float:
        """Returns how long it lasted."""
        return self.end_s - self.begin_s


@dataclass(slots=True)
class Book:
    """The records of one partition by their numbers. A number is taken before its record is sent."""

    at: At
    offsets: dict[int, int] = field(default_factory=dict)
    """Holds the offset of each acknowledged record by its number."""
    failed: dict[int, str] = field(default_factory=dict)
    """Why its writer has given up a record, which may be there all the same."""
    gaps: list[Gap] = field(default_factory=list)
    highest: int = -1
    """The highest number that was acknowledged."""
    acknowledged_s: float = 0.0
    """When the last one was; 0 if none was."""

    def acknowledge(self, number: int, offset: int) -> None:
        """Notes that a record was acknowledged."""
        now_s = time.monotonic()
        if self.acknowledged_s and now_s - self.acknowledged_s >= GAP_S_MIN:
            self.gaps.append(Gap(self.acknowledged_s, now_s))
        self.acknowledged_s = now_s
        self.offsets[number] = offset
        self.highest = max(self.highest, number)

    def fail(self, number: int, reason: str) -> None:
        """Notes that the fate of a record is unknown, or that it is not there."""
        self.failed[number] = reason

    def gap_s(self, begin_s: float, end_s: float) -> float:
        """Returns the longest time without an acknowledgement of which a part was then."""
        return max((gap.seconds for gap in self.gaps if gap.begin_s < end_s and gap.end_s > begin_s), default=0.0)

    def faults(self, found: Iterable[tuple[int, int]]) -> list[str]:
        """Returns what is wrong with the records that are there, as pairs of offset and number in the log's order."""
        places: dict[int, int] = {}
        wrong, last = [], -1
        for offset, number in found:
            if number in places:
                wrong.append(f"{self.at}: record {number} is there twice, at {places[number]} and {offset}")
            elif number < last:
                wrong.append(f"{self.at}: record {number} comes after {last}, at {offset}")
            last = max(last, number)
            places.setdefault(number, offset)
        for number, told in self.offsets.items():
            place = places.get(number)
            if place is None:
                wrong.append(f"{self.at}: record {number} was acknowledged at {told} and is lost")
            elif told not in (UNKNOWN, place):
                wrong.append(f"{self.at}: record {number} was acknowledged at {told} and is at {place}")
        return wrong


class Group:
    """Notes what the members of one group have read, and which partitions they owned in which generation."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.read: defaultdict[At, set[int]] = defaultdict(set)
        """Numbers of records."""
        self.reached: dict[At, int] = {}
        """The highest of them."""
        self.generation_max = 0
        self.refused = 0
        """Commits that a member was told to be impossible."""
        self.wrong: Counter[str] = Counter()
        """Counts each broken rule by its description."""
        self._owners: defaultdict[tuple[At, int], list[str]] = defaultdict(list)
        """Holds the owners of a partition in one generation, in their order."""

    def see(self, at: At, number: int) -> None:
        """Notes that a member has read a record."""
        self.read[at].add(number)
        self.reached[at] = max(self.reached.get(at, -1), number)

    def claim(self, member: str, generation: int, held: Iterable[At]) -> None:
        """Notes what a member holds in a generation."""
        self.generation_max = max(self.generation_max, generation)
        for at in held:
            owners = self._owners[at, generation]
            if member in owners[:-1]:
                self.wrong[f"{self.name}: {owners[-1]} and {member} both own {at} in generation {generation}"] += 1
            elif member not in owners:
                owners.append(member)

    def faults(self, books: Iterable[Book]) -> list[str]:
        """Returns what is wrong, when everything should have been read."""
        unread = [f"{self.name}: record {number} of {book.at} was not read" for book, number in self.unread(books)]
        return [*self.wrong, *unread]

    def unread(self, books: Iterable[Book]) -> list[tuple[Book, int]]:
        """Returns the acknowledged records that nobody has read."""
        return [(book, number) for book in books for number in book.offsets.keys() - self.read[book.at]]

    def has_passed(self, numbers: Mapping[At, int]) -> bool:
        """Returns whether of each partition a later record than that was read."""
        return all(self.reached.get(at, -1) > number for at, number in numbers.items())
