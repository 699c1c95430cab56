"""A follower process's incremental fetch session (KIP-227), as the leader keeps it between fetches.

A question is a follower's fetch of one partition, from one offset. It is *open* until it is answered, and *ready* when
it can be answered. A question that the throttle does not let through yet is *held*; one for which only the high
watermark has advanced is answered along with the next answer.
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
    """A follower's fetch of one partition, which is open until it is answered."""

    state: FollowerState
    verdict: FetchVerdict | FetchStatus


@dataclass(slots=True, eq=False)
class Session:
    """The fetch session of one follower process. Every partition in `ready`, `held` and `advanced` is in
    `questions`."""

    name: str
    incarnation: str
    is_throttled: Callable[[PartitionId], bool]
    number: int = 0
    granted: int = 0
    """The bytes of throttled replicas that the follower can take now."""
    questions: dict[PartitionId, Question] = field(default_factory=dict)
    ready: dict[PartitionId, None] = field(default_factory=dict)
    advanced: dict[PartitionId, None] = field(default_factory=dict)
    """The partitions whose fetch by this follower is not answered yet, and for which only the high watermark has
    advanced since."""
    held: dict[PartitionId, None] = field(default_factory=dict)
    """The partitions for which data could be sent to this follower, but the reassignment throttle does not allow it
    yet."""
    reported: dict[PartitionId, tuple[int, int, int]] = field(default_factory=dict)
    """The leader epoch, high watermark and log start offset of each partition's last answer of status OK. Followers
    ignore these fields in other answers."""
    waiter: asyncio.Future[None] | None = None

    def note(self, partition_id: PartitionId, log_end_offset: int) -> None:
        """Takes note that the partition's log, or its high watermark, has advanced."""
        question = self.questions.get(partition_id)
        if question is None:
            return
        # A high watermark alone wakes nobody: it travels with the next batch, or when the fetch's time is up.
        if question.state.fetch_offset < log_end_offset:
            self.has_data(partition_id)
        else:
            self.advanced[partition_id] = None

    def has_data(self, partition_id: PartitionId) -> None:
        """Includes the partition, for which there is data, in the next answer, or holds it until the reassignment
        throttle lets it through."""
        if self.is_throttled(partition_id):
            self.held[partition_id] = None
        else:
            self.make_ready(partition_id)

    def make_ready(self, partition_id: PartitionId) -> None:
        """Includes the partition in the next answer, and wakes the waiting fetch."""
        self.ready[partition_id] = None
        self.wake()

    def tell(self, entry: PartitionFetched) -> None:
        """Records the epoch and offsets that an answer tells the follower about a partition."""
        partition_id = PartitionId(TopicId(entry.topic_id), entry.partition)
        # Followers take nothing from any other answer, so the next one has to tell it again.
        if entry.status is FetchStatus.OK:
            self.reported[partition_id] = (entry.leader_epoch, entry.high_watermark, entry.log_start_offset)
        else:
            self.reported.pop(partition_id, None)

    def close(self, partition_id: PartitionId) -> None:
        """Drops the follower's fetch of this partition, because it is answered or withdrawn."""
        self.questions.pop(partition_id, None)
        self.ready.pop(partition_id, None)
        self.held.pop(partition_id, None)
        self.advanced.pop(partition_id, None)

    def wake(self) -> None:
        """Has the follower's waiting fetch answered now, if there is one."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)
