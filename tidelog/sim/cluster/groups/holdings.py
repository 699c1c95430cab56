"""The partitions that one member holds, and how far it has come: handed out, handled, committed.

    committed <= handled <= position

A record counts as handled some time after it was handed out, and only what is handled is committed: at-least-once.
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
    """A partition, from when the member was given it until it gave it up or lost it."""

    where: TopicPartition
    position: int | None = None
    """The offset that is read next; None until the group's committed offset is known."""
    handled: int = 0
    committed: int = 0
    is_going: bool = False
    """To be given up: nothing more is handed out."""
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    """Clear while something is handed out and not handled."""

    def __post_init__(self) -> None:
        self.idle.set()

    def begin(self, offset: int) -> None:
        self.position = self.handled = self.committed = offset

    def to_commit(self) -> CommittedOffset:
        return CommittedOffset(self.where.topic, self.where.partition, self.handled)


@dataclass(slots=True, eq=False)
class Holdings:
    """All that a member holds. `rebalanced` are keys that it was given or lost since it was last shown something."""

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
        """False if it was lost, even if the partition was given again since."""
        return self.held.get(holding.where) is holding

    def next(self) -> Holding | None:
        """Returns the partition that is to be read next; None if none can be."""
        ready = [one for one in self.held.values() if one.position is not None and not one.is_going]
        self._turn += 1
        return ready[self._turn % len(ready)] if ready else None

    def uncommitted(self) -> Iterator[Holding]:
        """Yields the partitions with handled offsets that are not committed."""
        for holding in self.held.values():
            if holding.position is not None and holding.handled > holding.committed:
                yield holding

    def committed(self, holdings: list[Holding], request: CommitOffsets, answer: CommitAnswer) -> None:
        """These were committed with that request."""
        for holding, committed, verdict in zip(holdings, request.offsets, answer.verdicts, strict=True):
            if verdict.code == KEPT:
                holding.committed = max(holding.committed, committed.offset)
