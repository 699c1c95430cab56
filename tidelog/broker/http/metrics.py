"""Metrics of the HTTP listener: requests, latencies, bytes and refusals.

Counting happens on every request, a scrape only now and then, so counters are plain numbers here and become Prometheus
metrics when they are collected. Labels are route templates, never paths, so that a client cannot create new series.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tidelog.broker.face.metric_families import counts

BUCKETS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_BOUNDS: Final = (*map(str, BUCKETS_S), "+Inf")


@dataclass(slots=True)
class RouteStats:
    """Requests, latencies and bytes of one route, by status."""

    template: str
    method: str
    statuses: dict[int, int] = field(default_factory=dict)
    buckets: dict[int, list[int]] = field(default_factory=dict)
    """Number of requests per bucket of `BUCKETS_S`, the last one above all bounds, by status class (2, 4, 5)."""
    seconds: dict[int, float] = field(default_factory=dict)
    received_bytes: int = 0
    sent_bytes: int = 0

    def observe(self, status: int, seconds: float, received_bytes: int, sent_bytes: int) -> None:
        """Counts one answered request."""
        self.received_bytes += received_bytes
        self.sent_bytes += sent_bytes
        statuses = self.statuses
        statuses[status] = statuses.get(status, 0) + 1
        kind = status // 100
        buckets = self.buckets.get(kind)
        if buckets is None:
            buckets = self.buckets[kind] = [0] * len(_BOUNDS)
            self.seconds[kind] = 0.0
        buckets[bisect_left(BUCKETS_S, seconds)] += 1
        self.seconds[kind] += seconds


class RequestMetrics(Collector):
    """Metrics of a broker's HTTP listeners."""

    def __init__(self) -> None:
        self._routes: dict[tuple[str, str], RouteStats] = {}
        self._refusals: dict[str, int] = {}
        self._gauges: list[tuple[str, str, Callable[[], float]]] = []
        self.shed: Callable[[], Mapping[tuple[str, str], int]] = dict
        """Returns the number of requests shed (refused because of overload), by request class and cause."""

    def route(self, template: str, method: str) -> RouteStats:
        """Returns the counts of a route; two listeners with the same route share them."""
        return self._routes.setdefault((template, method), RouteStats(template, method))

    def gauge(self, name: str, documentation: str, read: Callable[[], float]) -> None:
        """Adds a gauge whose value `read` returns at each scrape."""
        self._gauges.append((name, documentation, read))

    def refused(self, reason: str) -> None:
        """Counts a request or connection that was refused because of a bound."""
        self._refusals[reason] = self._refusals.get(reason, 0) + 1

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics for one scrape."""
        labels = ["route", "method"]
        requests = CounterMetricFamily("tidelog_http_requests", "Answered requests.", labels=[*labels, "status"])
        seconds = HistogramMetricFamily(
            "tidelog_http_request_seconds", "From a request's head to its answer.", labels=[*labels, "status_class"]
        )
        received = CounterMetricFamily("tidelog_http_received_bytes", "Bytes of request bodies.", labels=labels)
        sent = CounterMetricFamily("tidelog_http_sent_bytes", "Bytes of answers' bodies.", labels=labels)
        for stats in self._routes.values():
            names = [stats.template, stats.method]
            for status, count in stats.statuses.items():
                requests.add_metric([*names, str(status)], count)
            for kind, buckets in stats.buckets.items():
                cumulated = list(zip(_BOUNDS, accumulate(buckets), strict=True))
                seconds.add_metric([*names, f"{kind}xx"], cumulated, stats.seconds[kind])
            if stats.statuses:
                received.add_metric(names, stats.received_bytes)
                sent.add_metric(names, stats.sent_bytes)
        yield from (requests, seconds, received, sent)
        yield counts("http_refused", "Turned away because of a bound.", ["reason"], self._refusals)
        yield counts("http_shed", "Refused since too much waits.", ["class", "cause"], self.shed())
        for name, documentation, read in self._gauges:
            yield GaugeMetricFamily(name, documentation, value=read())
