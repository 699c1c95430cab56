"""The broker's own counters as Prometheus metrics, read from the broker at each scrape."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from tidelog.broker.face.face import BrokerFace


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
        yield GaugeMetricFamily(
            "tidelog_damaged_ranges",
            "Ranges of offsets that are damaged on this disk, and not repaired yet.",
            value=statistics.damaged_ranges,
        )
        yield GaugeMetricFamily(
            "tidelog_scrub_oldest_log_seconds",
            "For how long the log that was not read through for longest has not been.",
            value=statistics.scrubbed_ago_s,
        )

    def _waiting(self) -> Iterator[Metric]:
        """Yields the damage and missing repairs of the replicas on this broker, led or not. Several brokers may report
        the same partition, each for its own replica.
        """
        labels = ["topic", "partition"]
        damaged = GaugeMetricFamily(
            "tidelog_partition_damaged_ranges",
            "Ranges that are damaged in the replica here, and positions that its election waits for.",
            labels=labels,
        )
        without = GaugeMetricFamily(
            "tidelog_partition_ranges_without_copy",
            "Damaged ranges of the replica here of which no broker that was asked had a good copy.",
            labels=labels,
        )
        seconds = GaugeMetricFamily(
            "tidelog_partition_damaged_seconds",
            "For how long the oldest damage of the replica here has been known.",
            labels=labels,
        )
        awaited = GaugeMetricFamily(
            "tidelog_partition_waits_for",
            "1 for each broker that may have what the replica here waits for, and has not been asked or has not said.",
            labels=[*labels, "broker"],
        )
        for (topic, partition), wait in self._face.statistics.waiting.items():
            names = [topic, str(partition)]
            damaged.add_metric(names, wait.damaged_ranges)
            without.add_metric(names, wait.without_copy)
            seconds.add_metric(names, wait.seconds)
            for node_id in sorted(wait.awaited):
                awaited.add_metric([*names, str(node_id)], 1)
        yield from (damaged, without, seconds, awaited)
