"""Families of Prometheus metrics, as listeners show them at a scrape: counts and gauges by label, and histograms."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import Final, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from tidelog.broker.face.statistics import BUCKETS_S, Histogram

K = TypeVar("K", bound=str | tuple[str, ...])
Labelled = TypeVar("Labelled", CounterMetricFamily, GaugeMetricFamily)
_BOUNDS: Final = (*map(str, BUCKETS_S), "+Inf")


def gauge(name: str, meaning: str, value: float) -> Metric:
    """Returns a gauge without labels. The name follows `tidelog_`, as in all functions of this module."""
    return GaugeMetricFamily(f"tidelog_{name}", meaning, value=value)


def gauges(name: str, meaning: str, labels: list[str], values: Mapping[K, float]) -> Metric:
    """Returns a gauge for each key of `values`, which is the value of its label, or a tuple with one for each label."""
    return _labelled(GaugeMetricFamily(f"tidelog_{name}", meaning, labels=labels), values)


def counts(name: str, meaning: str, labels: list[str], values: Mapping[K, float]) -> Metric:
    """Returns a counter for each key of `values`, which is the value of its label, or a tuple with one for each
    label."""
    return _labelled(CounterMetricFamily(f"tidelog_{name}", meaning, labels=labels), values)


def _labelled(family: Labelled, values: Mapping[K, float]) -> Labelled:
    for key, value in values.items():
        family.add_metric([key] if isinstance(key, str) else key, value)
    return family


def buckets_of(histogram: Histogram) -> list[tuple[str, float]]:
    """Returns the cumulated buckets of a histogram with their upper bounds."""
    return list(zip(_BOUNDS, accumulate(histogram.counts), strict=True))
