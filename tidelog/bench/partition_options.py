"""Options and helpers shared by the parts of the benchmark workload `partitions`: topics, limits, progress steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final

from tidelog.admin import AdminClient
from tidelog.bench.result import Progress
from tidelog.bench.secured import Connection, Level, Secured, secured_cluster
from tidelog.model.ids import TopicPartition

REPLICAS_MAX: Final = 3
BOUNDS: Final = ("broker.partitions.max", "topics.max", "topic.partitions.max", "request.partitions.max")
BOUND_LEAST: Final = 12_000
SPARE: Final = 2_000
"""Partitions by which a broker's limits exceed the requested number, for internal topics."""
START_S_MAX: Final = 600.0
REQUEST_S_MAX: Final = 300.0
"""Seconds that an answer may take: slow answers are to be measured, not to fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsOptions:
    """Options of the workload `partitions`. `partitions` 0, `spread` 0 or an empty `latency_at` leaves that part out.

    `partitions` are created in topics of `topic_partitions`; `records` are written round robin to `spread` partitions;
    `latency_at` lists numbers of partitions, with commas between, at each of which `latency_records` are written.
    """

    brokers: int = 1
    partitions: int = 10_000
    topic_partitions: int = 1_000
    protocol: str = "isr"
    idle_s: float = 10.0
    spread: int = 1_000
    records: int = 1_000_000
    latency_at: str = ""
    latency_records: int = 1_000
    value_bytes: int = 100
    security: Level = Level.PLAIN

    @property
    def replicas(self) -> int:
        return min(REPLICAS_MAX, self.brokers)


class Steps:
    """The progress of the workload, as steps over all its parts."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0

    def did_one(self) -> None:
        self._done += 1
        self._progress(self._done, self._total)


def counts_of(latency_at: str) -> list[int]:
    """Returns the numbers of partitions that the option lists, in ascending order. Raises `ValueError`."""
    counts = sorted({int(word) for word in latency_at.split(",")}) if latency_at else []
    if counts and counts[0] < 1:
        raise ValueError(f"a cluster of {counts[0]} partitions")
    return counts


def pieces(name: str, partitions: int, topic_partitions: int) -> Iterator[tuple[str, int]]:
    """Yields names and partition counts of topics with `topic_partitions` partitions each that together have
    `partitions`."""
    for number, begin in enumerate(range(0, partitions, topic_partitions)):
        yield f"{name}-{number}", min(topic_partitions, partitions - begin)


def partitions_of(topic: str, partitions: int) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for partition in range(partitions)]


def cluster_for(options: PartitionsOptions, partitions: int) -> AbstractAsyncContextManager[Secured]:
    """Returns a cluster, not started yet, whose limits allow this many partitions."""
    bound = str(max(BOUND_LEAST, partitions + SPARE))
    settings = dict.fromkeys(BOUNDS, bound)
    return secured_cluster(options.security, options.brokers, settings=settings, start_timeout_s=START_S_MAX)


def admin_of(to: Connection) -> AdminClient:
    """Returns an admin client whose requests time out after `REQUEST_S_MAX` seconds."""
    return AdminClient(**to, request_timeout_ms=1000 * REQUEST_S_MAX)


async def create(admin: AdminClient, options: PartitionsOptions, topic: str, partitions: int) -> None:
    """Creates a topic with the commit protocol and the replication factor of the options."""
    configs = {"commit.protocol": options.protocol}
    await admin.create_topic(topic, partitions=partitions, replication_factor=options.replicas, configs=configs)
