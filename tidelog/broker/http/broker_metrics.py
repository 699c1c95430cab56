"""The broker's own counters as Prometheus metrics, read from the broker at each scrape."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from prometheus_client.core import CounterMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from tidelog.broker.face.face import BrokerFace
from tidelog.broker.face.metric_families import gauge, gauges


class BrokerMetrics(Collector):
    """Metrics of the broker's counters (`Stats`) and of damage in its replicas. The metrics of
    the partitions that this broker leads are made in `metrics_page`.
    """

    def __init__(self, face: BrokerFace) -> None:
        self._face = face

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics for one scrape."""
        cluster, statistics = self._face.cluster, self._face.statistics
        if not self._face.readiness.is_ready:
            return
        identity = {"cluster_id": cluster.cluster_id, "node_id": str(cluster.node_id)}
        yield InfoMetricFamily("tidelog_broker", "The cluster and the node id of this broker.", value=identity)
        for counter in fields(statistics.counts):
            if "help" not in counter.metadata:
                continue
            value = getattr(statistics.counts, counter.name)
            yield CounterMetricFamily(f"tidelog_{counter.name}", counter.metadata["help"], value=value)
        yield from self._waiting()
        yield gauge(
            "damaged_ranges",
            "Ranges of offsets that are damaged on this disk, and not repaired yet.",
            statistics.damaged_ranges,
        )
        yield gauge(
            "scrub_oldest_log_seconds",
            "For how long the log that was not read through for longest has not been.",
            statistics.scrubbed_ago_s,
        )

    def _waiting(self) -> Iterator[Metric]:
        """Yields the damage and missing repairs of the replicas on this broker, led or not. Several brokers may report
        the same partition, each for its own replica.
        """
        labels, waiting = ["topic", "partition"], self._face.statistics.waiting
        waits = {(topic, str(partition)): wait for (topic, partition), wait in waiting.items()}
        yield gauges(
            "partition_damaged_ranges",
            "Ranges that are damaged in the replica here, and positions that its election waits for.",
            labels,
            {names: wait.damaged_ranges for names, wait in waits.items()},
        )
        yield gauges(
            "partition_ranges_without_copy",
            "Damaged ranges of the replica here of which no broker that was asked had a good copy.",
            labels,
            {names: wait.without_copy for names, wait in waits.items()},
        )
        yield gauges(
            "partition_damaged_seconds",
            "For how long the oldest damage of the replica here has been known.",
            labels,
            {names: wait.seconds for names, wait in waits.items()},
        )
        yield gauges(
            "partition_waits_for",
            "1 for each broker that may have what the replica here waits for, and has not been asked or has not said.",
            [*labels, "broker"],
            {(*names, str(node_id)): 1 for names, wait in waits.items() for node_id in sorted(wait.awaited)},
        )
