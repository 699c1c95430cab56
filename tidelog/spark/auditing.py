"""The conclusion of an audit: are the replicas of a topic equal, and what is wrong?

Each replica is read by one task (`audit_replica`); their reports are compared here. Where the checksums of a window
differ, the brokers' catalogs are asked for the first different batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tidelog.model.errors import InvalidRequest, TidelogError
from tidelog.spark.audit_replica import WINDOW_OFFSETS, ReplicaReport, ReplicaTask, verify
from tidelog.spark.cluster import Cluster
from tidelog.spark.planner import OffsetRange
from tidelog.transport.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata


@dataclass(frozen=True, slots=True)
class Problem:
    """A fault of a partition, on a broker and at an offset; -1 if it concerns all brokers or all offsets."""

    topic: str
    partition: int
    broker: int
    offset: int
    what: str

    def __str__(self) -> str:
        where = f"{self.topic}-{self.partition}" + (f", broker {self.broker}" if self.broker >= 0 else "")
        return f"{where}: " + (f"offset {self.offset}: " if self.offset >= 0 else "") + self.what


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The result of an audit. `records` and `bytes` are totals over all replicas."""

    replicas: int
    records: int
    bytes: int
    problems: tuple[Problem, ...]


def plan_audit(cluster: Cluster, topics: Sequence[str]) -> tuple[list[ReplicaTask], list[Problem]]:
    """Returns a task per replica of each partition, over the offsets that all its replicas have, and the replicas that
    cannot be read."""
    metadata = cluster.metadata(list(topics))
    missing = set(topics).difference(topic.name for topic in metadata.topics)
    if missing:
        raise InvalidRequest(f"topic {min(missing)!r} does not exist")
    tasks: list[ReplicaTask] = []
    problems: list[Problem] = []
    for topic in metadata.topics:
        for partition in topic.partitions:
            tasks += _plan_partition(cluster, metadata, topic, partition, problems)
    return tasks, problems


def _plan_partition(
    cluster: Cluster,
    metadata: ClusterMetadata,
    topic: TopicMetadata,
    partition: PartitionMetadata,
    problems: list[Problem],
) -> list[ReplicaTask]:
    addresses = {broker.node_id: broker.address for broker in metadata.brokers}
    whole = OffsetRange(topic.name, partition.partition, 0, 0, topic.topic_id)
    extents: list[tuple[ReplicaTask, int, int]] = []
    for broker in partition.replicas:
        task = ReplicaTask(
            whole, broker, addresses.get(broker, ""), metadata.cluster_id, has_gaps=topic.protocol != "isr"
        )
        try:
            if broker not in addresses:
                raise InvalidRequest("this broker is not live: its replica was not read")
            extent = verify(cluster, task, 0, 0)
        except TidelogError as error:
            problems.append(Problem(topic.name, partition.partition, broker, -1, error.message))
            continue
        extents.append((task, extent.log_start_offset, extent.high_watermark))
    if not extents:
        return []
    start, end = max(start for _, start, _ in extents), min(end for _, _, end in extents)
    return [
        replace(task, range=replace(whole, start=min(start, end), end=end)) for task, _, _ in extents if start < end
    ]


def conclude(
    cluster: Cluster, tasks: Sequence[ReplicaTask], reports: Sequence[ReplicaReport], problems: Sequence[Problem]
) -> AuditReport:
    """Returns the audit's result from the reports of all replicas."""
    all_problems = list(problems)
    partitions: dict[OffsetRange, list[tuple[ReplicaTask, ReplicaReport]]] = {}
    for task, report in zip(tasks, reports, strict=True):
        partitions.setdefault(task.range, []).append((task, report))
        all_problems += _problems_of(task, report)
    for replicas in partitions.values():
        all_problems += _differences(cluster, replicas)
    return AuditReport(
        len(reports),
        sum(report.records for report in reports),
        sum(report.bytes for report in reports),
        tuple(all_problems),
    )


def _problems_of(task: ReplicaTask, report: ReplicaReport) -> list[Problem]:
    key = task.range.topic, task.range.partition, task.broker
    problems = [Problem(*key, anomaly.offset, f"{anomaly.kind}: {anomaly.what}") for anomaly in report.anomalies]
    if report.anomaly_count > len(report.anomalies):
        problems.append(Problem(*key, -1, f"{report.anomaly_count - len(report.anomalies)} more of the kind"))
    for damage in report.damaged:
        state = "not repaired in time" if damage in report.unread else "repaired since"
        problems.append(
            Problem(*key, damage.start_offset, f"damaged up to {damage.end_offset - 1} ({damage.reason}); {state}")
        )
    if report.error is not None:
        problems.append(Problem(*key, -1, f"not read to its end: {report.error}"))
    return problems


def _differences(cluster: Cluster, replicas: Sequence[tuple[ReplicaTask, ReplicaReport]]) -> list[Problem]:
    """Returns the differences between the replicas and the first one that was read completely, usually the leader's."""
    whole = [(task, report) for task, report in replicas if report.error is None and not report.unread]
    problems = []
    for task, report in whole[1:]:
        first, reference = whole[0]
        window = _first_difference(reference.windows, report.windows)
        if window is not None:
            offset = _first_batch(cluster, first, task, window)
            what = f"another record than on broker {first.broker}, in the window of {WINDOW_OFFSETS} from {window} on"
            problems.append(Problem(task.range.topic, task.range.partition, task.broker, offset, what))
    return problems


def _first_difference(reference: Mapping[int, str], copy: Mapping[int, str]) -> int | None:
    return next((window for window in sorted({*reference, *copy}) if reference.get(window) != copy.get(window)), None)


def _first_batch(cluster: Cluster, reference: ReplicaTask, copy: ReplicaTask, window: int) -> int:
    """Returns the offset of the first batch that differs in two brokers' catalogs; the window's offset if none does."""
    offset, end = max(window, reference.range.start), min(window + WINDOW_OFFSETS, reference.range.end)
    while offset < end:
        mine = verify(cluster, reference, offset, end, names_batches=True)
        theirs = verify(cluster, copy, offset, end, names_batches=True)
        for a, b in zip(mine.batches or (), theirs.batches or (), strict=False):
            if a != b:
                return min(a.base_offset, b.base_offset)
        offset = max(offset + 1, min(mine.next_offset, theirs.next_offset))
    return window
