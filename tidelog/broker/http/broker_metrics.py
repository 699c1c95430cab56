"""The broker's own counters as Prometheus families, read from it when somebody scrapes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker


PARTITION_GAUGES: Final = {
    "log_start_offset": "The first offset that can be read.",
    "high_watermark": "The end of what is committed.",
    "log_end_offset": "The next offset to be written.",
    "leader_epoch": "The number of the present leadership.",
}


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
        for counter in fields(broker.stats):
            value = getattr(broker.stats, counter.name)
            yield CounterMetricFamily(f"tidelog_{counter.name}", counter.metadata["help"], value=value)
        labels = ["topic", "partition"]
        families = {
            name: GaugeMetricFamily(f"tidelog_partition_{name}", meaning, labels=labels)
            for name, meaning in PARTITION_GAUGES.items()
        }
        for partition in broker.partitions.values():
            for name, family in families.items():
                family.add_metric([partition.topic, str(partition.partition)], getattr(partition, name))
        yield from families.values()
