"""Revocations: the decisions by which brokers lost leaderships, as the active controller remembers them. Pure.

An answered heartbeat lets a broker serve as a leader for a while (`broker/runtime/lease.py`), so by then the broker has
to know of every leadership that it has lost: otherwise it may have been fenced and replaced by another leader, and be
given a new lease by this answer. The answer names the position of the last such decision, which the broker must have
applied. It requires no more: a broker that is busy creating the logs of a large new topic keeps leading its partitions.

While such a decision is being committed, the image does not show it yet; a heartbeat that arrives meanwhile waits for
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tidelog.controller.records import MetadataRecord, PartitionChange, PartitionRegrouped, PartitionsChanged
from tidelog.model.cluster import ClusterImage
from tidelog.model.ids import NodeId, TopicId


class Revocations:
    """The revocations of one controller term: decisions that take leaderships from brokers. Everything before the term
    counts as a revocation for every broker."""

    def __init__(self) -> None:
        self._begun_at = 0
        self._made_at: dict[NodeId, int] = {}
        self._under_way: frozenset[NodeId] = frozenset()

    def begin(self, position: int) -> None:
        """Begins a controller term, before which the metadata up to this position was applied."""
        # What the last controller took from brokers is not remembered; all of it lies before this position.
        self._begun_at, self._made_at = position, {}

    @contextmanager
    def agreeing(self, nodes: frozenset[NodeId]) -> Iterator[None]:
        """Marks these brokers, inside the context, as losing leadership by a decision that is being committed."""
        self._under_way = nodes
        try:
            yield
        finally:
            self._under_way = frozenset()

    def made(self, nodes: frozenset[NodeId], position: int) -> None:
        """Records that the decision is committed: a broker that has applied the metadata up to `position` knows
        of it."""
        self._made_at |= dict.fromkeys(sorted(nodes), position)

    def is_under_way(self, node_id: int) -> bool:
        """True while a decision that takes leadership from this broker is being committed."""
        return NodeId(node_id) in self._under_way

    def last(self, node_id: int) -> int:
        """Returns the position up to which a broker must have applied the metadata to know all leaderships that it has
        lost."""
        # A broker that lost nothing in this term may not know yet what the last controller took from it, so it must
        # have come as far as the term's beginning.
        return self._made_at.get(NodeId(node_id), self._begun_at)


def deposed(image: ClusterImage, records: Sequence[MetadataRecord]) -> frozenset[NodeId]:
    """Returns the brokers that lose the leadership of a partition by these records."""
    changes = [change for record in records for change in _changes(record)]
    leaders = ((change, _leader(image, TopicId(change.topic_id), change.partition)) for change in changes)
    return frozenset(leader for change, leader in leaders if leader is not None and leader != change.leader)


def _changes(record: MetadataRecord) -> Sequence[PartitionChange]:
    # A Paxos partition that lost votes may have a live leader when an operator has it go on from others.
    if isinstance(record, PartitionRegrouped):
        return (record.change,)
    return record.changes if isinstance(record, PartitionsChanged) else ()


def _leader(image: ClusterImage, topic_id: TopicId, partition: int) -> NodeId | None:
    topic = image.topic_by_id(topic_id)
    return topic.partitions[partition].leader if topic is not None and partition < len(topic.partitions) else None
