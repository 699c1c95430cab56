"""All bounds of the HTTP listener: those of the operator's settings and the fixed ones.

Reaching a bound leads to backpressure or an error with a code, never to more memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.broker.face.admission import MIB, ListenerLimits
from tidelog.config.schema import BrokerConfig

KIB = 1 << 10


@dataclass(frozen=True, slots=True)
class Limits(ListenerLimits):
    """Bounds of one HTTP listener. `of` takes the configurable ones from the broker's settings."""

    # -- connections ---------------------------------------------------------------------------------------------
    keepalive_s: float = 75.0
    """Seconds until an idle connection is closed: longer than clients keep theirs, so that the client closes first."""
    lingering_s: float = 30.0
    lingering_silence_s: float = 5.0
    lingering_bytes_max: int = 64 * MIB
    """Bytes of a refused body that are read and dropped, for `lingering_s` and `lingering_silence_s` at most, so that
    the client sees the answer and not a reset.
    """
    refused_max: int = 32
    """Refused connections that are kept open for a moment, so that their clients can read the refusal."""
    head_timeout_s: float = 10.0
    fresh_s: float = 1.0
    rested_s: float = 25.0
    """Seconds after which a connection is at rest: `fresh_s` without a first request, or `rested_s` since the last one,
    by when most clients have closed theirs. If all places are taken, a new connection replaces one at rest.
    """
    line_bytes_max: int = 8 * KIB - 2
    headers_max: int = 64
    read_buffer_bytes: int = 256 * KIB
    unsent_timeout_ms: int = 30_000
    """Milliseconds without an acknowledgement of sent data after which the peer counts as gone (TCP_USER_TIMEOUT)."""

    # -- bodies in -----------------------------------------------------------------------------------------------
    json_bytes_max: int = 5 * MIB
    batches_bytes_max: int = 32 * MIB
    batches_partitions_max: int = 1_000
    body_timeout_s: float = 10.0
    entries_max: int = 10_000
    acls_at_once_max: int = 250
    key_bytes_max: int = 64 * KIB
    record_headers_max: int = 32
    record_header_bytes_max: int = KIB
    entry_id_chars_max: int = 80
    keyed_batches_max: int = 5
    """Maximum number of raw batches in a request with an `Idempotency-Key`: as many as a partition remembers of one
    producer.
    """

    # -- streamed produce ----------------------------------------------------------------------------------------
    stream_window_bytes: int = 2 * MIB
    """Bytes of streamed JSON records that are parsed and not answered yet; one record of any allowed size always
    fits.
    """
    stream_idle_s: float = 600.0
    stream_duration_s: float = 86_400.0

    # -- answers out ---------------------------------------------------------------------------------------------
    fetch_bytes_max: int = 57_671_680
    fetch_bytes_default: int = MIB
    json_fetch_bytes_max: int = 8 * MIB
    decoded_bytes_max: int = 64 * MIB
    """Maximum bytes that a stored batch may decompress to for a read as JSON."""
    record_bytes_max: int = 8 * MIB
    small_answer_bytes: int = 64 * KIB
    """Bytes up to which an answer is written to the socket at once; a transport buffers as much."""
    piece_bytes: int = 256 * KIB
    range_piece_bytes: int = MIB
    drain_timeout_s: float = 10.0
    """Seconds that a client may take to receive one piece of an answer before it is cut off."""

    @classmethod
    def of(cls, config: BrokerConfig) -> Limits:
        """Returns the limits of an HTTP listener: those that the broker's settings give, and the fixed ones."""
        return cls(
            connections_max=config.http_connections_max,
            address_connections_max=config.http_address_connections_max,
            json_bytes_max=config.http_request_bytes_max,
            batches_bytes_max=config.http_batches_bytes_max,
            batches_partitions_max=config.http_batches_partitions_max,
            body_budget_bytes=config.http_body_budget_bytes,
            head_timeout_s=config.http_head_timeout_ms / 1000,
            body_timeout_s=config.http_body_timeout_ms / 1000,
            lingering_s=config.http_linger_timeout_ms / 1000,
            lingering_bytes_max=config.http_linger_bytes_max,
            request_timeout_ms_max=config.request_timeout_ms_max,
            queue_wait_s_max=config.request_queue_wait_ms_max / 1000,
            queue_interval_s=config.request_queue_interval_ms / 1000,
            loop_lag_s_max=config.loop_lag_ms_max / 1000,
            fetch_bytes_max=config.fetch_max_bytes,
            record_bytes_max=config.http_record_bytes_max,
        )
