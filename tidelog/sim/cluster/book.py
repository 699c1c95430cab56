"""The simulator's record of one partition (`Book`): the committed batches, the leaders, and what the controller
decided."""

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
"""Seconds that a broker may need to apply a metadata record that changes its settings."""


class Committed(NamedTuple):
    """A leader's high watermark, with its epoch and the number of in-sync replicas."""

    epoch: int
    high_watermark: int
    in_sync: int
    """Number of in-sync replicas, as the leader knows it."""


@dataclass(slots=True, eq=False)
class Book:
    """Every batch that was ever committed in one partition, with the partition's leaders and excused losses."""

    name: str
    is_volatile: bool
    is_paxos: bool = False
    """True for a Paxos partition: every batch in any replica's log is committed."""
    batches: list[Held] = field(default_factory=list)
    torn: set[Held] = field(default_factory=set)
    """Committed batches of which the leader's copy was torn by a power cut, when no other ISR member had a copy. Only
    the catalog row (index entry) is left, which keeps the offset; an intact copy may still come from another replica.
    """
    given_up: LostRanges = field(default_factory=LostRanges)
    """Offsets whose loss an operator has accepted: readers are shown nothing there, and replicas need not agree
    there."""
    start: int = 0
    """Largest offset up to which a leader has deleted records."""
    leaders: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Leader's node and the number of its machine's start, by leader epoch."""
    seen_at: dict[tuple[int, int], tuple[Held, Held | None]] = field(default_factory=dict)
    """First batch that was seen at an offset, and the batch before it, by leader epoch and offset."""
    reset_epoch: int | None = None
    """Epoch of a leader that was elected when no replica had all committed batches. When that leader takes office,
    `batches` is shortened to what its log has. None if there is no such leader, or it has taken office."""
    is_gone: bool = False
    hurt: dict[int, None] = field(default_factory=dict)
    """Nodes whose disk was damaged in a way that the controller does not know yet: nothing is demanded of them until
    they have left ISR and ELR."""
    minimums: list[tuple[float, int]] = field(default_factory=list)
    """Minimum of in-sync replicas (`min.insync.replicas`, or the replication factor if that is less), with the seconds
    of virtual time from which on it holds."""
    unclean_epoch: int | None = None
    """First leader epoch after an unclean election; high watermarks of earlier epochs are not checked any more."""

    @property
    def is_unclean(self) -> bool:
        return self.unclean_epoch is not None

    def minimum(self, now_s: float) -> int:
        """Returns the smallest number of in-sync replicas that a leader may commit with at this time, by any setting
        that it may not have replaced yet."""
        since = next((i for i, (at_s, _) in enumerate(self.minimums) if at_s > now_s - SETTLE_S), len(self.minimums))
        return min((least for _, least in self.minimums[max(0, since - 1) :]), default=1)

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else 0

    def is_given_up(self, batch: Held) -> bool:
        """Returns True if the loss of the whole batch was accepted, so that no replica has to hold it."""
        return bool(self.given_up) and self.given_up.covers(batch.base, batch.end)

    def shown(self, begin: int) -> Iterator[Held]:
        """Yields the committed batches from index `begin` on, except those whose loss was accepted."""
        return (batch for batch in islice(self.batches, begin, None) if not self.is_given_up(batch))

    def index(self, offset: int) -> int:
        return bisect_left(self.batches, offset, key=lambda batch: batch.base)


class Move(NamedTuple):
    """The change that one metadata record makes to a partition."""

    topic: Topic
    was: PartitionInfo
    info: PartitionInfo
    lost: dict[int, bool]
    """Filled when the next metadata record is applied: if that record registers a broker that was not stopped cleanly
    before, its node, with True if it registers with another disk. Otherwise empty."""


def min_isr(topic: Topic, info: PartitionInfo) -> int:
    """Returns the number of in-sync replicas that a commit needs, by the topic's setting or the brokers' default."""
    replicas = info.replication_factor
    return min(replicas, int(topic.configs.get("min.insync.replicas") or (2 if replicas > 2 else 1)))


def has_moved(was: PartitionInfo, info: PartitionInfo) -> bool:
    """Returns True if this change ends a reassignment: the new leader may have joined the ISR by the same change."""
    return bool(was.adding or was.removing) and not (info.adding or info.removing)


def has_lost_the_last_known(was: PartitionInfo, info: PartitionInfo) -> bool:
    """Returns True if this change leaves no replica that may lead, not even a last known leader: all have lost
    records."""
    had = (*was.isr, *was.elr, *was.last_known_elr)
    return bool(had) and not (info.isr or info.elr or info.last_known_elr)


def moves(before: ClusterImage, after: ClusterImage, lost: dict[int, bool]) -> Iterator[Move]:
    """Yields the changes that one metadata record makes to partitions of data topics and of the offsets topic, new
    partitions included. `lost` becomes `Move.lost` of each."""
    for name, topic in after.topics.items():
        old = before.topics.get(name)
        if not (name.startswith(DATA) or name == OFFSETS_TOPIC) or old is topic:
            continue
        for info in topic.partitions:
            is_new = old is None or info.partition >= len(old.partitions)
            was = info if old is None or is_new else old.partitions[info.partition]
            if was is not info or is_new:
                yield Move(topic, was, info, lost)
