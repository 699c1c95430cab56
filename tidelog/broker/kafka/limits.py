"""Limits of the Kafka listener: those set by the operator and the fixed ones."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.broker.face.admission import MIB, ListenerLimits
from tidelog.config.schema import BrokerConfig


@dataclass(frozen=True, slots=True)
class KafkaLimits(ListenerLimits):
    """Limits of one listener. A request beyond a limit waits, or its connection is closed, so that memory stays
    bounded."""

    produce_bytes_max: int = 32 * MIB
    request_bytes_max: int = MIB
    """Maximum bytes of a request other than Produce."""
    login_bytes_max: int = 64 << 10
    pipeline_max: int = 32
    """Maximum number of Produce requests in progress on one connection. Other requests run one at a time."""
    room_s_max: float = 5.0
    """Seconds that a request may wait for room in a partition's request queue, for answer memory or for a late event
    loop; then it is begun anyway, and fails at partitions whose queue is still full."""
    fetch_bytes_max: int = 57_671_680
    idle_s: float = 600.0
    throttle_s_max: float = 30.0
    """Maximum seconds for which a connection is not read because its client has exceeded a quota."""

    @classmethod
    def of(cls, config: BrokerConfig) -> KafkaLimits:
        """Returns the limits that a broker's settings give."""
        return cls(
            connections_max=config.kafka_connections_max,
            address_connections_max=config.http_address_connections_max,
            produce_bytes_max=config.kafka_request_max_bytes,
            request_timeout_ms_max=config.request_timeout_ms_max,
            queue_wait_s_max=config.request_queue_wait_ms_max / 1000,
            queue_interval_s=config.request_queue_interval_ms / 1000,
            loop_lag_s_max=config.loop_lag_ms_max / 1000,
            fetch_bytes_max=config.fetch_max_bytes,
            idle_s=config.connections_max_idle_ms / 1000,
        )
