"""TLS in `/metrics`: until when the certificate is good, how often it was loaded again, whom it kept out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class TlsStatus(Protocol):
    """Tells what is shown."""

    @property
    def expires_s(self) -> float:
        """The end of the certificate's time, since 1970."""
        ...

    @property
    def reloads(self) -> Mapping[str, int]:
        """How often the files were loaded again, by outcome."""
        ...

    @property
    def refused(self) -> Mapping[tuple[str, str], int]:
        """Connections that did not come to be, by listener and cause."""
        ...


class TlsMetrics(Collector):
    """The state of a broker's certificate and of its handshakes."""

    def __init__(self, status: TlsStatus) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """Called by the registry for each scrape."""
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
