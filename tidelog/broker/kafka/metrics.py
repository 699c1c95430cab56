"""Counts of the listener: calls by version, errors, bytes, times, refusals, clients' software.

Counting happens on every request, showing once in a while, so counters are plain numbers here and become Prometheus
families only when they are collected. A client cannot make a series that there is no bound for: calls and versions are
those of the table, and of the software's names a few are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tidelog.broker.face.statistics import BUCKETS_S, Histogram
from tidelog.broker.kafka.apis import Key

SOFTWARE_MAX: Final = 100
OTHERS: Final = "other"


class CallStats:
    """The counts of one call in one version."""

    __slots__ = ("errors", "received_bytes", "requests", "sent_bytes", "total", "waiting")

    def __init__(self) -> None:
        self.requests = 0
        self.errors = 0
        """Answers in which something was refused."""
        self.received_bytes = 0
        self.sent_bytes = 0
        self.waiting = Histogram()
        """Counts from when a request came to when it was begun."""
        self.total = Histogram()
        """Counts from when a request came to its answer, with the time that it waited for data or a commit."""


class KafkaMetrics(Collector):
    """All counts of one listener."""

    def __init__(self) -> None:
        self.calls: dict[tuple[Key, int], CallStats] = {}
        self.refused: Counter[str] = Counter()
        """Connections that were turned away or broken off, by the reason."""
        self.held: Counter[str] = Counter()
        """Requests that had to wait before they were begun, by what they lacked."""
        self.software: Counter[str] = Counter()
        """Connections that have named their client's software."""
        self._gauges: list[tuple[str, str, Callable[[], float]]] = []

    def of(self, call: Key, version: int) -> CallStats:
        """Returns the counts of a call, which are there from its first request on."""
        stats = self.calls.get((call, version))
        if stats is None:
            stats = self.calls[call, version] = CallStats()
        return stats

    def met(self, software: str) -> None:
        """Counts a connection that has said what its client's software is."""
        is_known = software in self.software or len(self.software) < SOFTWARE_MAX
        self.software[software if is_known else OTHERS] += 1

    def gauge(self, name: str, documentation: str, read: Callable[[], float]) -> None:
        """Shows a number that somebody else keeps."""
        self._gauges.append((name, documentation, read))

    def collect(self) -> Iterator[Metric]:
        """Called by the registry for each scrape."""
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
                family.add_metric(names, _buckets(histogram), histogram.seconds)
        yield from (requests, errors, received, sent, waiting, total)
        refused = CounterMetricFamily("tidelog_kafka_refused", "Connections turned away.", labels=["reason"])
        for reason, count in self.refused.items():
            refused.add_metric([reason], count)
        held = CounterMetricFamily("tidelog_kafka_held", "Requests that waited to be begun.", labels=["reason"])
        for reason, count in self.held.items():
            held.add_metric([reason], count)
        clients = CounterMetricFamily("tidelog_kafka_clients", "Connections by software.", labels=["software"])
        for software, count in self.software.items():
            clients.add_metric([software], count)
        yield from (refused, held, clients)
        for name, documentation, read in self._gauges:
            yield GaugeMetricFamily(name, documentation, value=read())


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    cumulated, total = [], 0
    for bound, count in zip((*map(str, BUCKETS_S), "+Inf"), histogram.counts, strict=True):
        total += count
        cumulated.append((bound, float(total)))
    return cumulated
