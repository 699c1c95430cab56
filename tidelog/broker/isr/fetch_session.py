"""A follower process's incremental fetch session (KIP-227), as the leader keeps it between fetches.

A question about a partition is *open* until it is answered, and *ready* when it can be. One that the throttle does not
let through yet is *held*; one of which only the high watermark has advanced goes along with the next answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from tidelog.broker.isr.replica_messages import FetchStatus, FollowerState, PartitionFetched
from tidelog.model.ids import PartitionId, TopicId
from tidelog.replication.isr.events import FetchVerdict


@dataclass(slots=True)
class Question:
    """A follower's question about one partition."""

    state: FollowerState
    verdict: FetchVerdict | FetchStatus


@dataclass(slots=True, eq=False)
class Session:
    """The fetch session of one follower process. Everything in `ready`, `held` and `advanced` is in `questions`."""

    name: str
    incarnation: str
    is_throttled: Callable[[PartitionId], bool]
    number: int = 0
    granted: int = 0
    """The bytes of throttled replicas that the follower would take now."""
    questions: dict[PartitionId, Question] = field(default_factory=dict)
    ready: dict[PartitionId, None] = field(default_factory=dict)
    advanced: dict[PartitionId, None] = field(default_factory=dict)
    """The partitions of which only the high watermark has advanced."""
    held: dict[PartitionId, None] = field(default_factory=dict)
    """There is data for these, and no allowance."""
    told: dict[PartitionId, tuple[int, int, int]] = field(default_factory=dict)
    """The leader epoch, the high watermark and the log start of each partition's last answer, if that was one that
    followers go by: of a refusal, and of an answer to an earlier epoch's question, they take nothing."""
    waiter: asyncio.Future[None] | None = None

    def note(self, partition_id: PartitionId, log_end_offset: int) -> None:
        """Notes that the partition's log, or its high watermark, has advanced."""
        question = self.questions.get(partition_id)
        if question is None:
            return
        # A high watermark alone wakes nobody: it travels with the next batch, or when the fetch's time is up.
        if question.state.fetch_offset < log_end_offset:
            self.has_data(partition_id)
        else:
            self.advanced[partition_id] = None

    def has_data(self, partition_id: PartitionId) -> None:
        """Makes the question ready, or holds it until the throttle lets it through."""
        if self.is_throttled(partition_id):
            self.held[partition_id] = None
        else:
            self.make_ready(partition_id)

    def make_ready(self, partition_id: PartitionId) -> None:
        """Has the question answered with the next answer, and wakes the fetch that waits."""
        self.ready[partition_id] = None
        self.wake()

    def tell(self, entry: PartitionFetched) -> None:
        """Notes what the follower is told of a partition."""
        partition_id = PartitionId(TopicId(entry.topic_id), entry.partition)
        # Followers take nothing from any other answer, so the next one has to tell it again.
        if entry.status is FetchStatus.OK:
            self.told[partition_id] = (entry.leader_epoch, entry.high_watermark, entry.log_start_offset)
        else:
            self.told.pop(partition_id, None)

    def close(self, partition_id: PartitionId) -> None:
        """Drops the question: it is answered, or asked no more."""
        self.questions.pop(partition_id, None)
        self.ready.pop(partition_id, None)
        self.held.pop(partition_id, None)
        self.advanced.pop(partition_id, None)

    def wake(self) -> None:
        """Has the follower's fetch answered now, if one waits."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)
