"""Metrics of JSON Web Tokens: how often their keys were reloaded, and how many signatures were verified."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from tidelog.broker.face.jwt_login import JwtLogin


class JwtMetrics(Collector):
    """Metrics of a broker that accepts JSON Web Tokens."""

    def __init__(self, login: JwtLogin) -> None:
        self._login = login

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics for one scrape."""
        reloads = CounterMetricFamily(
            "tidelog_jwt_key_reloads", "How often the keys of JSON Web Tokens were read again.", labels=["outcome"]
        )
        for outcome in ("done", "refused"):
            reloads.add_metric([outcome], self._login.source.reloads.get(outcome, 0))
        verified = CounterMetricFamily(
            "tidelog_jwt_verifications", "Signatures of JSON Web Tokens that were verified, good or not."
        )
        verified.add_metric([], self._login.verifications)
        yield from (reloads, verified)
