"""The partitions of one group member, and three positions in each.

    committed <= handled <= position

A record counts as handled some time after it was handed out, and only handled records are committed: at-least-once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tidelog.model.groups import CommitAnswer, CommitOffsets, CommittedOffset
from tidelog.model.ids import TopicPartition
from tidelog.sim.cluster.groups.rules import KEPT


@dataclass(slots=True, eq=False)
class Holding:
    """A partition of a member, from its assignment until the member gives it up or loses it."""

    where: TopicPartition
    position: int | None = None
    """Offset of the next record to read; None until the group's committed offset is known."""
    handled: int = 0
    committed: int = 0
    is_going: bool = False
    """True while the partition is being given up: no more records are handed out."""
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    """Clear while records are handed out and not handled yet."""

    def __post_init__(self) -> None:
        self.idle.set()

    def begin(self, offset: int) -> None:
        self.position = self.handled = self.committed = offset

    def to_commit(self) -> CommittedOffset:
        return CommittedOffset(self.where.topic, self.where.partition, self.handled)


@dataclass(slots=True, eq=False)
class Holdings:
    """All partitions of a member. `rebalanced` names partitions that it gained or lost since it last handed out
    records."""

    held: dict[TopicPartition, Holding] = field(default_factory=dict)
    rebalanced: dict[str, None] = field(default_factory=dict)
    _turn: int = 0

    def take(self, where: TopicPartition) -> Holding:
        self.rebalanced[str(where)] = None
        holding = self.held[where] = Holding(where)
        return holding

    def drop(self, wheres: Iterable[TopicPartition]) -> None:
        for where in wheres:
            if self.held.pop(where, None) is not None:
                self.rebalanced[str(where)] = None

    def has(self, holding: Holding) -> bool:
        """Returns True if the member holds the partition under this assignment; False if it lost it since, even if it
        was assigned again."""
        return self.held.get(holding.where) is holding

    def next(self) -> Holding | None:
        """Returns the partition to read next, in turn; None if none is ready."""
        ready = [one for one in self.held.values() if one.position is not None and not one.is_going]
        self._turn += 1
        return ready[self._turn % len(ready)] if ready else None

    def uncommitted(self) -> Iterator[Holding]:
        """Yields the partitions with handled offsets that are not committed."""
        for holding in self.held.values():
            if holding.position is not None and holding.handled > holding.committed:
                yield holding

    def committed(self, holdings: list[Holding], request: CommitOffsets, answer: CommitAnswer) -> None:
        """Notes the offsets that the answer to a commit confirms."""
        for holding, committed, verdict in zip(holdings, request.offsets, answer.verdicts, strict=True):
            if verdict.code == KEPT:
                holding.committed = max(holding.committed, committed.offset)
