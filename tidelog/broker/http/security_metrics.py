"""Metrics of TLS and of JSON Web Tokens: the expiry of the certificate, failed handshakes, verified signatures, and how
often certificates and keys were reloaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from tidelog.broker.face.jwt_login import JwtLogin
from tidelog.broker.face.metric_families import counts, gauge


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
        yield gauge(
            "tls_certificate_expiry_timestamp_seconds",
            "When this broker's certificate is not good any more.",
            status.expires_s,
        )
        yield _reloads("tls_reloads", "How often certificates were loaded again.", status.reloads)
        yield counts("tls_refused", "Connections without a TLS handshake.", ["listener", "cause"], status.refused)


class JwtMetrics(Collector):
    """Metrics of a broker that accepts JSON Web Tokens."""

    def __init__(self, login: JwtLogin) -> None:
        self._login = login

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics for one scrape."""
        reloads = self._login.source.reloads
        yield _reloads("jwt_key_reloads", "How often the keys of JSON Web Tokens were read again.", reloads)
        yield CounterMetricFamily(
            "tidelog_jwt_verifications",
            "Signatures of JSON Web Tokens that were verified, good or not.",
            self._login.verifications,
        )


def _reloads(name: str, meaning: str, reloads: Mapping[str, int]) -> Metric:
    return counts(name, meaning, ["outcome"], {outcome: reloads.get(outcome, 0) for outcome in ("done", "refused")})
