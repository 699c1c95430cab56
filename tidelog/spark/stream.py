"""The positions of a streaming query: its start, the end of each micro-batch, and the offset ranges in between.

Spark calls in a certain order and repeats itself: `initial` is called twice for a query's first batch, and again after
a restart if that batch was never committed. A planned and uncommitted batch is planned again, with the end in Spark's
log and no call of `latest` before.

*The pinned start.* A start such as "latest" changes with each lookup. Spark's log has only the ends of batches, so if
the first batch failed, the restarted query would start later and silently skip records. So the first batch of such a
query is empty: its end is its start, which is then in the log, and all later failures concern batch 1. (Spark's Kafka
source keeps its start in a file in the checkpoint; a Python source does not know that path.)
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tidelog.model.ids import TopicPartition
from tidelog.spark.limits import Positions, backlog, is_worth_it, limit_bytes, limit_records
from tidelog.spark.offsets import Offsets
from tidelog.spark.options import Selection, SourceOptions
from tidelog.spark.planner import OffsetRange
from tidelog.spark.ranges import check_exists, drop_lost_topics, ranges_between, resolve
from tidelog.spark.view import Snapshot, View

LOOKUP_WAIT_MS = 500
"""Milliseconds that a lookup waits for new records if there are none. Spark repeats it at once."""


class StreamPlanner:
    """The planner of one streaming query, in its driver. `now_s` is a monotonic clock."""

    def __init__(self, options: SourceOptions, view: View, now_s: Callable[[], float]) -> None:
        self._options, self._view, self._now_s = options, view, now_s
        self._initial: Offsets | None = None
        self._must_pin = False
        self._target: Offsets | None = None
        self._newest: Offsets | None = None
        self._decided: tuple[Offsets, Snapshot] | None = None
        """The end of the next batch and the cluster's state at that decision, until the batch's ranges are
        requested."""
        self._planned_s = -math.inf

    def initial(self) -> Offsets:
        """Returns the start positions of a new query, the same in every call."""
        if self._initial is None:
            selection = self._options.selection
            snapshot = self._look(Offsets())
            check_exists(selection.named, selection.assigned, snapshot)
            positions = resolve(self._options.start, snapshot, self._view)
            self._initial = Offsets(positions, snapshot.topic_ids)
            self._must_pin = not self._options.start.is_fixed
        return self._initial

    def freeze(self) -> None:
        """Makes the present ends of the partitions the end of the query (`Trigger.AvailableNow`)."""
        snapshot = self._look(Offsets())
        self._target = Offsets(snapshot.ends, snapshot.topic_ids)

    def latest(self, start: Offsets, *, is_limited: bool) -> Offsets:
        """Returns the end of the batch that starts at `start`; `start` itself for no batch."""
        if self._must_pin:
            self._must_pin = False
            return start
        snapshot, begin, end = self._decide(start, is_limited=is_limited)
        if self._target is None and not backlog(begin, end):
            self._view.wait_for_records(snapshot.ends, LOOKUP_WAIT_MS)
            snapshot, begin, end = self._decide(start, is_limited=is_limited)
        if not backlog(begin, end) and set(begin) == set(start.positions):
            return start
        self._planned_s = self._now_s()
        decided = Offsets(end, {topic: snapshot.topic_ids[topic] for topic in Offsets(end).topics})
        self._decided = decided, snapshot
        return decided

    @property
    def newest(self) -> Offsets | None:
        """The ends of all partitions at the last lookup; None before it."""
        return self._newest

    def ranges(self, start: Offsets, end: Offsets) -> tuple[list[OffsetRange], Snapshot]:
        """Returns the offset ranges of a batch, and the state of the partitions. Raises `DataLoss` if records are
        missing and `failOnDataLoss` is true."""
        self._must_pin = False  # this batch was decided before
        snapshot = self._snapshot_for(end)
        return ranges_between(start, end, snapshot, self._options.loss), snapshot

    def _snapshot_for(self, end: Offsets) -> Snapshot:
        """Returns the cluster's state at the decision about this batch, or the present state if it was not decided by
        this planner."""
        decided, self._decided = self._decided, None
        if decided is not None and decided[0] == end:
            return decided[1]
        topics = tuple(end.topics)
        return self._view.snapshot(Selection(topics=topics), end.positions) if topics else Snapshot()

    def _decide(self, start: Offsets, *, is_limited: bool) -> tuple[Snapshot, Positions, Positions]:
        snapshot = self._look(start)
        begin = self._begin(start, snapshot)
        end = self._bounded(begin, snapshot)
        return snapshot, begin, self._limited(begin, end) if is_limited else end

    def _look(self, start: Offsets) -> Snapshot:
        snapshot = self._view.snapshot(self._options.selection, start.positions)
        self._newest = Offsets(snapshot.ends, snapshot.topic_ids)
        return snapshot

    def _begin(self, start: Offsets, snapshot: Snapshot) -> Positions:
        """Returns the start of the next batch in each partition; new partitions start at their beginning."""
        kept = drop_lost_topics(start, snapshot, self._options.loss)
        for partition, position in kept.positions.items():
            extent = snapshot.extents.get(partition)
            if extent is not None and extent.end < position:
                self._options.loss.lost(f"{partition} ends at {extent.end}, and was read up to {position} before")
        new = {
            partition: extent.start for partition, extent in snapshot.extents.items() if partition not in kept.positions
        }
        for partition, position in new.items():
            if position > 0 and start.topic_ids.get(partition.topic) == snapshot.topic_ids[partition.topic]:
                self._options.loss.lost(f"{partition} is new, and its records before {position} have been deleted")
        return {**new, **kept.positions}

    def _bounded(self, begin: Positions, snapshot: Snapshot) -> Positions:
        """Returns the end of the readable records in each partition: never before `begin`, and never beyond the query's
        end."""
        return {partition: max(position, self._end_of(partition, snapshot)) for partition, position in begin.items()}

    def _end_of(self, partition: TopicPartition, snapshot: Snapshot) -> int:
        end = snapshot.extents[partition].end if partition in snapshot.extents else 0
        if self._target is None:
            return end
        if self._target.topic_ids.get(partition.topic) != snapshot.topic_ids.get(partition.topic):
            return 0
        return min(end, self._target.positions.get(partition, 0))

    def _limited(self, begin: Positions, end: Positions) -> Positions:
        limits = self._options.limits
        waiting = backlog(begin, end)
        if self._target is None and waiting and not is_worth_it(begin, end, limits, self._now_s() - self._planned_s):
            return begin
        if limits.records_max is not None:
            end = limit_records(begin, end, limits.records_max)
        if limits.bytes_max is not None and waiting:
            sizes = self._view.record_bytes({partition: begin[partition] for partition in waiting})
            end = limit_bytes(begin, end, {partition: sizes.get(partition, 1.0) for partition in end}, limits.bytes_max)
        return end
