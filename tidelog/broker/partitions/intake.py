"""Produce requests on their way into a partition: checked, queued, and taken out in groups that are appended together.

The topic's limits are checked when a request comes in. Sequence numbers are checked only when the request is taken out:
the request before it in the queue may be from the same producer.
"""

from __future__ import annotations

import asyncio

from tidelog.broker.partitions.mailbox import Mailbox
from tidelog.broker.partitions.proposals import ACKS_NONE, Ahead, Asker, Proposal, admit_batches, stamp_keyed
from tidelog.broker.runtime.stats import Stats
from tidelog.config.schema import TopicConfig
from tidelog.model.batch_header import RecordBatch, assign_offsets
from tidelog.model.cluster import TOTAL
from tidelog.model.errors import Overloaded, TidelogError, TotalOrderRequired
from tidelog.model.ids import ProducerId
from tidelog.model.ports import Clock
from tidelog.model.producers import ProducerTable


class Intake:
    """The produce requests that wait to be appended to one partition, for one term of its leader."""

    def __init__(self, topic: str, clock: Clock, stats: Stats) -> None:
        self._topic = topic
        self._clock = clock
        self._stats = stats
        self.mailbox = Mailbox()
        """The queue of requests."""

    def put(
        self,
        batches: list[RecordBatch],
        config: TopicConfig,
        acks: int,
        deadline_s: float,
        idempotency: tuple[ProducerId, int] | None,
        expected_end: int | None,
        asker: Asker | None,
    ) -> Proposal:
        """Queues a produce request. Raises `TotalOrderRequired`, `TooLarge`, `InvalidTimestamp`, `UnprocessableBody` or
        `Overloaded`."""
        # In any other order a batch could be acknowledged, and the one that it counts on become void.
        if expected_end is not None and config.commit_order != TOTAL:
            raise TotalOrderRequired(
                f"an expected end offset needs commit.order=total, and topic {self._topic} has "
                f"commit.order={config.commit_order}; nothing was appended"
            )
        batches, append_time_ms = admit_batches(batches, config, self._clock.wall_ms())
        if idempotency is not None:
            batches = stamp_keyed(batches, *idempotency)
        proposal = Proposal(batches, acks, deadline_s, asker, append_time_ms, expected_end)
        proposal.since_s = self._clock.monotonic_s()
        try:
            self.mailbox.put(proposal)
        except Overloaded:
            self._stats.refused_appends += 1
            raise
        return proposal

    def take(self, producers: ProducerTable, appended_end: int, bytes_max: int) -> Group:
        """Takes the next requests from the queue, to be appended together. Those that are expired, out of sequence or
        not at the expected end offset are answered with an error, and left out."""
        waiting = self.mailbox.take_group(bytes_max)
        now_s, queue = self._clock.monotonic_s(), self._stats.stages.produce_queue
        for proposal in waiting:
            queue.observe(now_s - proposal.since_s)
            proposal.since_s = now_s
        ahead: Ahead = {}
        loop_s = asyncio.get_running_loop().time()
        admitted = [proposal for proposal in waiting if self._admits(proposal, producers, ahead, appended_end, loop_s)]
        return Group(self._topic, admitted, self._clock, self._stats)

    def _admits(self, proposal: Proposal, producers: ProducerTable, ahead: Ahead, end: int, loop_s: float) -> bool:
        if proposal.acks != ACKS_NONE and not proposal.is_waiting:
            return False
        try:
            if loop_s >= proposal.deadline_s:
                raise proposal.late()
            proposal.judge(producers, ahead)
            proposal.require_end(end)
        except TidelogError as error:
            self._stats.refused_appends += 1
            proposal.fail(error)
            return False
        return True

    def close(self, refusal: TidelogError) -> None:
        """Fails all queued requests with `refusal`: nothing of them was appended."""
        while group := self.mailbox.take_group():
            for proposal in group:
                proposal.fail(refusal)


class Group:
    """Produce requests that are appended together: all of them or none."""

    def __init__(self, topic: str, proposals: list[Proposal], clock: Clock, stats: Stats) -> None:
        self._topic = topic
        self._clock = clock
        self.proposals = proposals
        self._stats = stats

    @property
    def offsets(self) -> int:
        """The number of offsets that the batches need that are not duplicates."""
        return sum(
            batch.header.last_offset_delta + 1
            for proposal in self.proposals
            for batch, verdict in zip(proposal.batches, proposal.verdicts, strict=True)
            if verdict is None
        )

    def assign(self, base_offset: int, leader_epoch: int) -> list[RecordBatch]:
        """Assigns consecutive offsets from `base_offset` on to the batches that are not duplicates, and returns these
        batches."""
        fresh: list[RecordBatch] = []
        for proposal in self.proposals:
            for batch, verdict in zip(proposal.batches, proposal.verdicts, strict=True):
                if verdict is None:
                    assigned = assign_offsets(batch, base_offset, leader_epoch)
                    fresh.append(assigned)
                    proposal.placements.append((base_offset, assigned.header.last_offset))
                    base_offset = assigned.header.next_offset
                else:
                    self._stats.duplicate_batches += 1
                    proposal.placements.append(verdict)
        return fresh

    def refuse(self, error: TidelogError) -> None:
        """Fails all requests of the group with `error`: nothing was appended."""
        self._stats.refused_appends += len(self.proposals)
        for proposal in self.proposals:
            proposal.fail(error)

    def count(self, fresh: list[RecordBatch]) -> None:
        """Adds the appended batches to the broker's statistics."""
        self._stats.append_writes += 1
        self._stats.appended_batches += len(fresh)
        records, size = sum(batch.header.record_count for batch in fresh), sum(batch.header.size for batch in fresh)
        self._stats.appended_records += records
        self._stats.appended_bytes += size
        self._stats.stages.produce_append.observe(self._clock.monotonic_s() - self.proposals[0].since_s)
        traffic = self._stats.traffic.of(self._topic)
        traffic.in_records += records
        traffic.in_bytes += size
