"""A partition as the ledger has it: the committed batches, the leaders, and the log that the metadata describes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from tidelog.model.cluster import ClusterImage, PartitionInfo, Topic
from tidelog.model.losses import LostRanges
from tidelog.model.names import OFFSETS_TOPIC
from tidelog.sim.cluster.shadows import Held
from tidelog.sim.cluster.traffic import DATA

SETTLE_S = 5.0
"""How long a broker may need to carry out what it has read in the log."""


class Committed(NamedTuple):
    """A leader's report of its high watermark."""

    epoch: int
    high_watermark: int
    in_sync: int
    """The number of replicas in sync, as the leader knows it."""


@dataclass(slots=True, eq=False)
class Book:
    """The book of one partition: every batch that was ever committed."""

    name: str
    is_volatile: bool
    is_paxos: bool = False
    """True for a Paxos partition: every batch in any replica's log is committed."""
    batches: list[Held] = field(default_factory=list)
    torn: set[Held] = field(default_factory=set)
    """Batches that were called committed by a leader whose copy is damaged: a power cut has torn it, and no member had
    another. Its row holds the offset; a good copy may still come from whoever else has one."""
    given_up: LostRanges = field(default_factory=LostRanges)
    """Offsets whose loss an operator has accepted: nobody is shown them again, whatever lies there."""
    start: int = 0
    """The largest offset up to which a leader has deleted."""
    leaders: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The node and the life of its machine that led, by leader epoch."""
    seen_at: dict[tuple[int, int], tuple[Held, Held | None]] = field(default_factory=dict)
    """The batch that was ever there and the one before it, by epoch and offset."""
    reset_epoch: int | None = None
    """The leader of this epoch was elected from nobody: the book is truncated to what it has."""
    is_gone: bool = False
    hurt: dict[int, None] = field(default_factory=dict)
    """Members whose disk was robbed of something; nobody holds them to it until they are out of ISR and ELR."""
    minimums: list[tuple[float, int]] = field(default_factory=list)
    """`min.insync.replicas`, or the number of replicas if that is less: from when on."""
    unclean_epoch: int | None = None
    """The first epoch whose leader was elected without being in sync; what earlier leaders say is void."""

    @property
    def is_unclean(self) -> bool:
        return self.unclean_epoch is not None

    def minimum(self, now_s: float) -> int:
        """So many replicas must be in sync for a commit, by any setting that a leader may still go by."""
        since = next((i for i, (at_s, _) in enumerate(self.minimums) if at_s > now_s - SETTLE_S), len(self.minimums))
        return min((least for _, least in self.minimums[max(0, since - 1) :]), default=1)

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else 0

    def is_given_up(self, batch: Held) -> bool:
        """True if nobody has to hold this batch any more."""
        return bool(self.given_up) and self.given_up.covers(batch.base, batch.end)

    def shown(self, begin: int) -> Iterator[Held]:
        """Yields the committed batches from the one of this number on, but for those that were given up."""
        return (batch for batch in islice(self.batches, begin, None) if not self.is_given_up(batch))

    def index(self, offset: int) -> int:
        return bisect_left(self.batches, offset, key=lambda batch: batch.base)


class Move(NamedTuple):
    """The change that a metadata record makes to a partition."""

    topic: Topic
    was: PartitionInfo
    info: PartitionInfo
    lost: dict[int, bool]
    """The node whose registration follows in the same decision, with less than it had; true if on another disk."""


def min_isr(topic: Topic, info: PartitionInfo) -> int:
    """Replicas that must be in sync for a commit, by the topic's settings and the brokers' default."""
    replicas = info.replication_factor
    return min(replicas, int(topic.configs.get("min.insync.replicas") or (2 if replicas > 2 else 1)))


def has_moved(was: PartitionInfo, info: PartitionInfo) -> bool:
    """A move is over: somebody may lead who came into sync with that very change."""
    return bool(was.adding or was.removing) and not (info.adding or info.removing)


def has_lost_the_last_known(was: PartitionInfo, info: PartitionInfo) -> bool:
    """Returns True if this change leaves no replica that may lead, not even the last known leader: all have lost
    something.
    """
    had = (*was.isr, *was.elr, *was.last_known_elr)
    return bool(had) and not (info.isr or info.elr or info.last_known_elr)


def moves(before: ClusterImage, after: ClusterImage, lost: dict[int, bool]) -> Iterator[Move]:
    """Partitions of topics with data, the groups' own too, that one record changes, or creates."""
    for name, topic in after.topics.items():
        old = before.topics.get(name)
        if not (name.startswith(DATA) or name == OFFSETS_TOPIC) or old is topic:
            continue
        for info in topic.partitions:
            is_new = old is None or info.partition >= len(old.partitions)
            was = info if old is None or is_new else old.partitions[info.partition]
            if was is not info or is_new:
                yield Move(topic, was, info, lost)
