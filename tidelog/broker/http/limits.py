"""Every bound of the HTTP listener, in one place: the operator's settings and the fixed ones.

Hitting a bound is backpressure or a refusal with a code, never memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.broker.face.admission import MIB, ListenerLimits
from tidelog.config.schema import BrokerConfig

KIB = 1 << 10


@dataclass(frozen=True, slots=True)
class Limits(ListenerLimits):
    """Bounds of one HTTP listener. `of` takes from the broker's settings those that an operator may set."""

    # -- connections ---------------------------------------------------------------------------------------------
    keepalive_s: float = 75.0
    """An idle connection is closed after this; longer than clients keep theirs, so that the client closes first."""
    lingering_s: float = 30.0
    lingering_silence_s: float = 5.0
    lingering_bytes_max: int = 64 * MIB
    """How long, and how much of, a body that was refused is read and dropped, so that the client sees the answer and
    not a reset; less long if nothing comes."""
    refused_max: int = 32
    """Connections beyond all places that are given time to read so."""
    head_timeout_s: float = 10.0
    fresh_s: float = 1.0
    rested_s: float = 25.0
    """A connection is at rest if its client has asked nothing for `fresh_s` since it connected, or nothing more for
    `rested_s`, by when most clients have closed theirs. If all places are taken, a new connection gets its place."""
    line_bytes_max: int = 8 * KIB - 2
    headers_max: int = 64
    read_buffer_bytes: int = 256 * KIB
    unsent_timeout_ms: int = 30_000
    """A peer that acknowledges nothing of what was sent for this long is gone (TCP_USER_TIMEOUT)."""

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
    """Raw batches under one `Idempotency-Key`: as many as a partition remembers of one producer."""

    # -- streamed produce ----------------------------------------------------------------------------------------
    stream_window_bytes: int = 2 * MIB
    """JSON of streamed records that is parsed and not yet answered; one record of any allowed size always fits."""
    stream_idle_s: float = 600.0
    stream_duration_s: float = 86_400.0

    # -- answers out ---------------------------------------------------------------------------------------------
    fetch_bytes_max: int = 57_671_680
    fetch_bytes_default: int = MIB
    json_fetch_bytes_max: int = 8 * MIB
    decoded_bytes_max: int = 64 * MIB
    """The bytes at most that a stored batch may decompress to for a read as JSON."""
    record_bytes_max: int = 8 * MIB
    small_answer_bytes: int = 64 * KIB
    """Up to here an answer is handed to the socket whole; it is what a transport buffers without complaint."""
    piece_bytes: int = 256 * KIB
    range_piece_bytes: int = MIB
    drain_timeout_s: float = 10.0
    """A client that does not take one piece of an answer in this time is cut off."""

    @classmethod
    def of(cls, config: BrokerConfig) -> Limits:
        """Returns the bounds that go with a broker's settings."""
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
