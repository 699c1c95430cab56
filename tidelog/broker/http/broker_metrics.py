"""The broker's own counters as Prometheus families, read from it when somebody scrapes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker


class BrokerMetrics(Collector):
    """What a broker counts (`Stats`), and the extent of the partitions it leads."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def collect(self) -> Iterator[Metric]:
        """Called by the registry for each scrape."""
        broker = self._broker
        if not broker.is_ready:
            return
        yield InfoMetricFamily(
            "tidelog_broker", "Who this is.", value={"cluster_id": broker.cluster_id, "node_id": str(broker.node_id)}
        )
        for name in (field.name for field in fields(broker.stats)):
            yield CounterMetricFamily(f"tidelog_{name}", f"Total {name}.", value=getattr(broker.stats, name))
        labels = ["topic", "partition"]
        families = {
            name: GaugeMetricFamily(f"tidelog_partition_{name}", f"A partition's {name}.", labels=labels)
            for name in ("log_start_offset", "high_watermark", "log_end_offset", "leader_epoch")
        }
        for partition in broker.partitions.values():
            for name, family in families.items():
                family.add_metric([partition.topic, str(partition.partition)], getattr(partition, name))
        yield from families.values()
