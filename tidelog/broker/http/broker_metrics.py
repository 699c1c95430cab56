"""The broker's own counters as Prometheus families, read from it when somebody scrapes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from tidelog.broker.face.face import BrokerFace

PARTITION_GAUGES: Final = {
    "log_start_offset": "The first offset that can be read.",
    "high_watermark": "The end of what is committed.",
    "log_end_offset": "The next offset to be written.",
    "leader_epoch": "The number of the present leadership.",
}


class BrokerMetrics(Collector):
    """What a broker counts (`Stats`), and the extent and the replicas of the partitions it leads."""

    def __init__(self, face: BrokerFace) -> None:
        self._face = face

    def collect(self) -> Iterator[Metric]:
        """Called by the registry for each scrape."""
        cluster, statistics = self._face.cluster, self._face.statistics
        if not self._face.readiness.is_ready:
            return
        yield InfoMetricFamily(
            "tidelog_broker", "Who this is.", value={"cluster_id": cluster.cluster_id, "node_id": str(cluster.node_id)}
        )
        for counter in fields(statistics.counts):
            if "help" not in counter.metadata:
                continue
            value = getattr(statistics.counts, counter.name)
            yield CounterMetricFamily(f"tidelog_{counter.name}", counter.metadata["help"], value=value)
        labels = ["topic", "partition"]
        families = {
            name: GaugeMetricFamily(f"tidelog_partition_{name}", meaning, labels=labels)
            for name, meaning in PARTITION_GAUGES.items()
        }
        for partition in statistics.led.values():
            for name, family in families.items():
                family.add_metric([partition.topic, str(partition.partition)], getattr(partition, name))
        yield from families.values()
        yield from self._replication()
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
        """Yields what replicas here, led or not, wait for: two brokers that show it have two damaged ones."""
        labels = ["topic", "partition"]
        damaged = GaugeMetricFamily(
            "tidelog_partition_damaged_ranges",
            "Ranges that are damaged in the replica here, and positions that its election waits for.",
            labels=labels,
        )
        without = GaugeMetricFamily(
            "tidelog_partition_ranges_without_copy",
            "Of these, ranges that nobody who could be asked had a good copy of.",
            labels=labels,
        )
        seconds = GaugeMetricFamily(
            "tidelog_partition_damaged_seconds", "For how long the oldest of these has been damaged.", labels=labels
        )
        awaited = GaugeMetricFamily(
            "tidelog_partition_waits_for",
            "1 for each broker that may have what the replica here waits for, and has not been asked or has not said.",
            labels=[*labels, "broker"],
        )
        for (topic, partition), waiting in self._face.statistics.waiting.items():
            names = [topic, str(partition)]
            damaged.add_metric(names, waiting.damaged_ranges)
            without.add_metric(names, waiting.without_copy)
            seconds.add_metric(names, waiting.seconds)
            for node_id in sorted(waiting.awaited):
                awaited.add_metric([*names, str(node_id)], 1)
        yield from (damaged, without, seconds, awaited)

    def _replication(self) -> Iterator[Metric]:
        """Of partitions that are led here, so that a sum over all brokers counts each once."""
        labels = ["topic", "partition"]
        in_sync = GaugeMetricFamily("tidelog_partition_in_sync_replicas", "The size of the ISR.", labels=labels)
        lag = GaugeMetricFamily(
            "tidelog_replica_lag_records", "Records that a follower does not have yet.", labels=[*labels, "replica"]
        )
        led = list(self._face.statistics.led.values())
        for partition in led:
            names = [partition.topic, str(partition.partition)]
            in_sync.add_metric(names, len(partition.in_sync))
            for node_id, behind in partition.replica_lags.items():
                lag.add_metric([*names, str(node_id)], behind)
        yield in_sync
        yield lag
        yield GaugeMetricFamily(
            "tidelog_under_replicated_partitions",
            "Partitions led here that have fewer replicas in sync than replicas.",
            value=sum(len(partition.in_sync) <= len(partition.replica_lags) for partition in led),
        )
        yield GaugeMetricFamily(
            "tidelog_under_min_isr_partitions",
            "Partitions led here that refuse acks=all: too few replicas are in sync, or no majority answers.",
            value=sum(not partition.is_writable for partition in led),
        )
