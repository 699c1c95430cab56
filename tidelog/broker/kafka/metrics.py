"""Metrics of the Kafka listener: requests by type and version, errors, bytes, times, refused connections, client
software.

Counters are plain numbers, because counting is on every request's path; they become Prometheus families when scraped.
Clients cannot create series without bound: types and versions come from the table of supported ones, and of client
software names at most 100 are kept.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tidelog.broker.face.metric_families import buckets_of, counts
from tidelog.broker.face.statistics import Histogram
from tidelog.broker.kafka.apis import Key

SOFTWARE_MAX: Final = 100
OTHERS: Final = "other"


class CallStats:
    """Counters of one request type in one version."""

    __slots__ = ("errors", "received_bytes", "requests", "sent_bytes", "total", "waiting")

    def __init__(self) -> None:
        self.requests = 0
        self.errors = 0
        """Number of requests answered with an error."""
        self.received_bytes = 0
        self.sent_bytes = 0
        self.waiting = Histogram()
        """Seconds from the arrival of a request to its beginning."""
        self.total = Histogram()
        """Seconds from the arrival of a request to its answer, waits for data or commits included."""


class KafkaMetrics(Collector):
    """All metrics of one listener."""

    def __init__(self) -> None:
        self.calls: defaultdict[tuple[Key, int], CallStats] = defaultdict(CallStats)
        """Counters by request type and version; made at the first request."""
        self.refused: Counter[str] = Counter()
        """Number of connections refused or closed by the broker, by reason."""
        self.held: Counter[str] = Counter()
        """Number of requests that had to wait before they began, by the resource they lacked."""
        self.software: Counter[str] = Counter()
        """Number of connections by client software (name and version)."""
        self._gauges: list[tuple[str, str, Callable[[], float]]] = []

    def met(self, software: str) -> None:
        """Counts a connection by its client software."""
        is_known = software in self.software or len(self.software) < SOFTWARE_MAX
        self.software[software if is_known else OTHERS] += 1

    def gauge(self, name: str, documentation: str, read: Callable[[], float]) -> None:
        """Adds a gauge whose value is read by a call of `read` at each scrape."""
        self._gauges.append((name, documentation, read))

    def collect(self) -> Iterator[Metric]:
        """Yields the metric families for one scrape."""
        labels = ["call", "version"]
        requests = CounterMetricFamily("tidelog_kafka_requests", "Requests that were answered.", labels=labels)
        errors = CounterMetricFamily("tidelog_kafka_errors", "Requests answered with an error.", labels=labels)
        received = CounterMetricFamily("tidelog_kafka_received_bytes", "Bytes of requests.", labels=labels)
        sent = CounterMetricFamily("tidelog_kafka_sent_bytes", "Bytes of answers.", labels=labels)
        waiting = HistogramMetricFamily("tidelog_kafka_queue_seconds", "From a frame until it is begun.", labels=labels)
        total = HistogramMetricFamily("tidelog_kafka_request_seconds", "From a frame to its answer.", labels=labels)
        for (call, version), stats in self.calls.items():
            names = [call.label, str(version)]
            requests.add_metric(names, stats.requests)
            errors.add_metric(names, stats.errors)
            received.add_metric(names, stats.received_bytes)
            sent.add_metric(names, stats.sent_bytes)
            for family, histogram in ((waiting, stats.waiting), (total, stats.total)):
                family.add_metric(names, buckets_of(histogram), histogram.seconds)
        yield from (requests, errors, received, sent, waiting, total)
        yield counts("kafka_refused", "Connections turned away.", ["reason"], self.refused)
        yield counts("kafka_held", "Requests that waited to be begun.", ["reason"], self.held)
        yield counts("kafka_clients", "Connections by software.", ["software"], self.software)
        for name, documentation, read in self._gauges:
            yield GaugeMetricFamily(name, documentation, value=read())
