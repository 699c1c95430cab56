"""Metrics of a broker's own work and of its clock, as Prometheus families."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tidelog.broker.face.face import BrokerFace
from tidelog.broker.face.statistics import BUCKETS_S, Histogram, Stages, Traffic

OTHERS: Final = "(others)"
TRAFFIC: Final = {
    "in_bytes": "Bytes of record batches appended, by topic.",
    "in_records": "Records appended, by topic.",
    "out_bytes": "Bytes of record batches read by consumers, by topic.",
    "out_records": "Records read by consumers, by topic.",
}
_BOUNDS: Final = (*map(str, BUCKETS_S), "+Inf")


class WorkMetrics(Collector):
    """Metrics of one broker's work and clock, from its start on."""

    def __init__(self, face: BrokerFace) -> None:
        self._face = face

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics for one scrape."""
        statistics, work, shares = self._face.statistics, self._face.work, self._face.shares
        yield from _traffic(statistics.counts.traffic)
        yield _stages(statistics.counts.stages)
        yield _histogram("fsync_round_seconds", "Rounds of fsyncs, each for all that waited.", statistics.fsync_rounds)
        yield _gauge("partitions_open", "Partitions that this broker leads and has open.", len(statistics.led))
        yield _gauge("partitions_opening", "Partitions whose logs are to be opened, or made.", statistics.opening)
        yield _gauge("large_jobs", "Requests whose large work is being done, slice by slice.", work.jobs)
        yield _gauge("large_jobs_waiting", "Requests whose large work has not begun.", work.waiting)
        yield CounterMetricFamily("tidelog_large_slices", "Slices of large work that were done.", work.slices)
        yield _counts(
            "quota_refused", "Uses that were refused since a quota was used up, by its key.", "key", shares.refused
        )
        yield _counts("quota_delayed", "Uses that were held up by a quota, by its key.", "key", shares.delayed)
        if self._face.audit is not None:
            meaning = "Lines of the audit log, by what became of them."
            yield _counts("audit_lines", meaning, "outcome", self._face.audit.outcomes)
        yield _gauge("quota_buckets", "Users, client ids and addresses whose use is counted.", shares.buckets)
        yield _gauge(
            "clock_offset_seconds",
            "How far this machine's clock is ahead of the other brokers', as it was told last.",
            statistics.time.offset_ms / 1000,
        )
        yield _gauge(
            "clock_is_off",
            "1 if this machine's clock is off by more than clock.skew.ms.max: nothing is deleted by age.",
            statistics.time.is_off,
        )


def _counts(name: str, meaning: str, label: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(f"tidelog_{name}", meaning, labels=[label])
    for key, count in counts.items():
        family.add_metric([key], count)
    return family


def _traffic(traffic: Traffic) -> Iterator[Metric]:
    """Yields the traffic totals by topic. Topics beyond the bound of separately counted ones are summed as `OTHERS`,
    which is no valid topic name.
    """
    shown = [*traffic.topics.items(), (OTHERS, traffic.others)]
    for name, meaning in TRAFFIC.items():
        family = CounterMetricFamily(f"tidelog_topic_{name}", meaning, labels=["topic"])
        for topic, totals in shown:
            family.add_metric([topic], getattr(totals, name))
        yield family


def _stages(stages: Stages) -> Metric:
    meaning = "How long produces and fetches spent in each stage of their way."
    family = HistogramMetricFamily("tidelog_stage_seconds", meaning, labels=["request", "stage"])
    for labels, counted in stages.items():
        family.add_metric(labels, _buckets(counted), counted.seconds)
    return family


def _buckets(counted: Histogram) -> list[tuple[str, float]]:
    return list(zip(_BOUNDS, accumulate(counted.counts), strict=True))


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(f"tidelog_{name}", meaning, value=value)


def _histogram(name: str, meaning: str, counted: Histogram) -> Metric:
    return HistogramMetricFamily(f"tidelog_{name}", meaning, buckets=_buckets(counted), sum_value=counted.seconds)
