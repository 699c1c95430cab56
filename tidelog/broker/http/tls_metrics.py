"""TLS metrics: the expiry of the certificate, how often it was reloaded, and failed handshakes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class TlsStatus(Protocol):
    """The state of a broker's TLS certificate and handshakes."""

    @property
    def expires_s(self) -> float:
        """Expiry of the certificate, in seconds since 1970."""

    @property
    def reloads(self) -> Mapping[str, int]:
        """Number of times that the certificate files were read again, by outcome: `done`, or `refused` if unusable."""

    @property
    def refused(self) -> Mapping[tuple[str, str], int]:
        """Number of failed TLS handshakes, by listener and cause."""


class TlsMetrics(Collector):
    """Metrics of a broker's certificate and of its TLS handshakes."""

    def __init__(self, status: TlsStatus) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics for one scrape."""
        status = self._status
        yield GaugeMetricFamily(
            "tidelog_tls_certificate_expiry_timestamp_seconds",
            "When this broker's certificate is not good any more.",
            value=status.expires_s,
        )
        reloads = CounterMetricFamily(
            "tidelog_tls_reloads", "How often certificates were loaded again.", labels=["outcome"]
        )
        for outcome in ("done", "refused"):
            reloads.add_metric([outcome], status.reloads.get(outcome, 0))
        refused = CounterMetricFamily(
            "tidelog_tls_refused", "Connections without a TLS handshake.", labels=["listener", "cause"]
        )
        for (listener, cause), count in status.refused.items():
            refused.add_metric([listener, cause], count)
        yield from (reloads, refused)
