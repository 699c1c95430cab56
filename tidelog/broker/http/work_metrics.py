"""Metrics of a broker's own work and of its clock, as Prometheus families."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tidelog.broker.face.face import BrokerFace
from tidelog.broker.face.metric_families import buckets_of, counts, gauge
from tidelog.broker.face.statistics import Histogram, Stages, Traffic

OTHERS: Final = "(others)"
TRAFFIC: Final = {
    "in_bytes": "Bytes of record batches appended, by topic.",
    "in_records": "Records appended, by topic.",
    "out_bytes": "Bytes of record batches read by consumers, by topic.",
    "out_records": "Records read by consumers, by topic.",
}


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
        yield gauge("partitions_open", "Partitions that this broker leads and has open.", len(statistics.led))
        yield gauge("partitions_opening", "Partitions whose logs are to be opened, or made.", statistics.opening)
        yield gauge("large_jobs", "Requests whose large work is being done, slice by slice.", work.jobs)
        yield gauge("large_jobs_waiting", "Requests whose large work has not begun.", work.waiting)
        yield CounterMetricFamily("tidelog_large_slices", "Slices of large work that were done.", work.slices)
        yield counts(
            "quota_refused", "Uses that were refused since a quota was used up, by its key.", ["key"], shares.refused
        )
        yield counts("quota_delayed", "Uses that were held up by a quota, by its key.", ["key"], shares.delayed)
        if self._face.audit is not None:
            meaning = "Lines of the audit log, by what became of them."
            yield counts("audit_lines", meaning, ["outcome"], self._face.audit.outcomes)
        yield gauge("quota_buckets", "Users, client ids and addresses whose use is counted.", shares.buckets)
        yield gauge(
            "clock_offset_seconds",
            "How far this machine's clock is ahead of the other brokers', as it was told last.",
            statistics.time.offset_ms / 1000,
        )
        yield gauge(
            "clock_is_off",
            "1 if this machine's clock is off by more than clock.skew.ms.max: nothing is deleted by age.",
            statistics.time.is_off,
        )


def _traffic(traffic: Traffic) -> Iterator[Metric]:
    """Yields the traffic totals by topic. Topics beyond the bound of separately counted ones are summed as `OTHERS`,
    which is no valid topic name.
    """
    shown = {**traffic.topics, OTHERS: traffic.others}
    for name, meaning in TRAFFIC.items():
        sums = {topic: getattr(totals, name) for topic, totals in shown.items()}
        yield counts(f"topic_{name}", meaning, ["topic"], sums)


def _stages(stages: Stages) -> Metric:
    meaning = "How long produces and fetches spent in each stage of their way."
    family = HistogramMetricFamily("tidelog_stage_seconds", meaning, labels=["request", "stage"])
    for labels, counted in stages.items():
        family.add_metric(labels, buckets_of(counted), counted.seconds)
    return family


def _histogram(name: str, meaning: str, counted: Histogram) -> Metric:
    return HistogramMetricFamily(f"tidelog_{name}", meaning, buckets=buckets_of(counted), sum_value=counted.seconds)
