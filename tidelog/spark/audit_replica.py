"""The audit of one replica of one partition: one task reads it completely and reports what is wrong.

The broker first checks its files itself (`verification`), which finds damage even if it is repaired from another
replica a moment later. Then every record is read from this broker's copy only. The task checks the checksums of
batches, the structure of records, the order of offsets, and the sequence numbers of idempotent producers, which reveal
missing, duplicate and reordered batches.

Without Spark, so it also runs in tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from urllib.parse import quote

import xxhash

from tidelog.model.arrow import decode_to_arrow
from tidelog.model.batch_header import BatchHeader, iter_batches
from tidelog.model.errors import DamagedBatch, TidelogError
from tidelog.model.ids import KEYED_PRODUCER_BIT
from tidelog.model.lost_ranges import LostRange
from tidelog.model.producers import SEQUENCES
from tidelog.spark.cluster import Cluster
from tidelog.spark.errors import DataLoss, LossRule
from tidelog.spark.planner import OffsetRange
from tidelog.spark.range_reader import read_range
from tidelog.transport.errors import decode_answer
from tidelog.transport.verification import DamagedOffsets, ReplicaVerification

WINDOW_OFFSETS = 10_000
"""Offsets per window; replicas are compared by a checksum per window."""
ANOMALIES_MAX = 100
"""Maximum anomalies listed per replica; further ones are only counted."""


@dataclass(frozen=True, slots=True)
class ReplicaTask:
    """The work of one audit task: a range of one partition, and the id and address of the broker to read it from."""

    range: OffsetRange
    broker: int
    address: str
    cluster_id: str
    has_gaps: bool
    """True if the topic's log may have gaps between offsets."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A fault at an offset: `gap`, `duplicate`, `disorder`, or `lost` (given up by an operator)."""

    kind: str
    offset: int
    what: str


@dataclass(slots=True)
class ReplicaReport:
    """The result of one audit task. `windows` maps the first offset of a window to the checksum of its batches."""

    broker: int
    records: int = 0
    bytes: int = 0
    windows: dict[int, str] = field(default_factory=dict)
    damaged: list[DamagedOffsets] = field(default_factory=list)
    unread: list[DamagedOffsets] = field(default_factory=list)
    """Damaged offsets that were not repaired while the task waited."""
    lost: list[LostRange] = field(default_factory=list)
    """Offsets whose records are lost and were given up by an operator."""
    anomalies: list[Anomaly] = field(default_factory=list)
    anomaly_count: int = 0
    error: str | None = None

    @property
    def passed(self) -> list[int]:
        """The offsets at which reading resumed after unreadable ranges."""
        return [damage.end_offset for damage in self.unread] + [lost.end for lost in self.lost]

    def note(self, kind: str, offset: int, what: str) -> None:
        """Adds an anomaly."""
        self.anomaly_count += 1
        if len(self.anomalies) < ANOMALIES_MAX:
            self.anomalies.append(Anomaly(kind, offset, what))


def verify(
    cluster: Cluster, task: ReplicaTask, offset: int, to: int, *, names_batches: bool = False
) -> ReplicaVerification:
    """Returns the broker's own check of the range, or of its first part, up to `next_offset`."""
    offset_range = task.range
    target = (
        f"/v3/clusters/{task.cluster_id}/topics/{quote(offset_range.topic, safe='')}"
        f"/partitions/{offset_range.partition}/replicas/{task.broker}/verification?offset={offset}&to={to}&batches={str(names_batches).lower()}"
    )
    return decode_answer(ReplicaVerification, cluster.call("GET", target))


def audit_replica(cluster: Cluster, task: ReplicaTask) -> ReplicaReport:
    """Reads and checks a replica. Errors are in the report."""
    report = ReplicaReport(task.broker)
    try:
        report.damaged = _find_damaged(cluster, task)
        reader = _Reader(task, report)
        for batches in _pieces(cluster, task, report):
            reader.take(batches)
        reader.end()
    except TidelogError as error:
        report.error = error.message
    return report


def _find_damaged(cluster: Cluster, task: ReplicaTask) -> list[DamagedOffsets]:
    damaged: list[DamagedOffsets] = []
    offset = task.range.start
    while offset < task.range.end:
        answer = verify(cluster, task, offset, task.range.end)
        damaged += [damage for damage in answer.damaged if damage not in damaged]
        offset = max(answer.next_offset, offset + 1)
    return damaged


def _pieces(cluster: Cluster, task: ReplicaTask, report: ReplicaReport) -> Iterator[memoryview]:
    """Yields all readable batches of the range, leaving out those that stay damaged."""
    position = task.range.start
    while position < task.range.end:
        rest = replace(task.range, start=position)
        try:
            for piece in read_range(cluster, rest, None, LossRule(), replica=task.address):
                yield piece
                position = _end_of(piece)
            return
        except DamagedBatch:
            answer = verify(cluster, task, position, task.range.end)
            lost = [damage for damage in answer.damaged if damage.end_offset > position]
            if not lost:
                continue  # repaired this moment
            report.unread.append(lost[0])
            position = lost[0].end_offset
        except DataLoss as error:
            if error.lost is None:
                raise
            report.lost.append(error.lost)
            report.note(
                "lost", error.lost.start, f"the records up to {error.lost.end - 1} are lost, and that was accepted"
            )
            position = error.lost.end


def _end_of(piece: memoryview) -> int:
    return max(batch.header.next_offset for batch in iter_batches(piece))


class _Reader:
    """Checks batches in order against the offsets and sequence numbers so far."""

    def __init__(self, task: ReplicaTask, report: ReplicaReport) -> None:
        self._task, self._report = task, report
        self._next_offset: int | None = None
        self._leader_epoch = -1
        self._producers: dict[int, tuple[int, int]] = {}
        """Epoch and next sequence number, by producer id."""
        self._digest = xxhash.xxh3_128()
        self._window = -1

    def take(self, piece: memoryview) -> None:
        """Checks whole batches, which must come in order. Raises `InvalidBatch` for a wrong checksum or invalid
        records."""
        offset_range = self._task.range
        self._report.records += decode_to_arrow(
            piece, offset_range.topic, offset_range.partition, columns=["offset"]
        ).num_rows
        self._report.bytes += len(piece)
        for batch in iter_batches(piece):
            self._add_to_window(batch.header.base_offset, batch.data)
            self._check_place(batch.header)
            self._check_producer(batch.header)

    def end(self) -> None:
        """Called after the last batch: stores the checksum of the last window of offsets in the report."""
        if self._window >= 0:
            self._report.windows[self._window * WINDOW_OFFSETS] = self._digest.hexdigest()

    def _add_to_window(self, offset: int, data: memoryview) -> None:
        window = offset // WINDOW_OFFSETS
        if window != self._window:
            self.end()
            self._window, self._digest = window, xxhash.xxh3_128()
        self._digest.update(data)

    def _check_place(self, header: BatchHeader) -> None:
        report, offset = self._report, header.base_offset
        if self._next_offset is not None and offset < self._next_offset:
            report.note("disorder", offset, f"a batch from {offset} on follows one that ends at {self._next_offset}")
        elif self._next_offset is not None and offset > self._next_offset and not self._is_expected_gap(offset):
            report.note("gap", self._next_offset, f"no records from {self._next_offset} to {offset - 1}")
        if header.leader_epoch < self._leader_epoch:
            report.note("disorder", offset, f"leader epoch {header.leader_epoch} follows {self._leader_epoch}")
        self._next_offset, self._leader_epoch = header.next_offset, header.leader_epoch

    def _is_expected_gap(self, offset: int) -> bool:
        return self._task.has_gaps or offset in self._report.passed

    def _check_producer(self, header: BatchHeader) -> None:
        producer_id, epoch, sequence = header.producer_id, header.producer_epoch, header.base_sequence
        if producer_id < 0:
            return
        expected = self._producers.get(producer_id)
        after = (sequence + header.record_count) % SEQUENCES
        self._producers[producer_id] = epoch, after
        if expected is None or (epoch > expected[0] and sequence == 0) or (epoch, sequence) == expected:
            return
        who = f"producer {producer_id}, epoch {epoch}, sequence {sequence}"
        if producer_id & KEYED_PRODUCER_BIT or (
            epoch == expected[0] and (expected[1] - sequence) % SEQUENCES < SEQUENCES // 2
        ):
            self._report.note("duplicate", header.base_offset, f"{who}: expected {expected[1]}")
            self._producers[producer_id] = expected
        elif epoch < expected[0]:
            self._report.note("disorder", header.base_offset, f"{who}: after epoch {expected[0]}")
            self._producers[producer_id] = expected
        elif not any(end <= header.base_offset for end in self._report.passed):
            self._report.note(
                "gap", header.base_offset, f"{who}: expected {expected[1] if epoch == expected[0] else 0}"
            )
