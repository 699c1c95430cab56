"""The bounds of the listener that speaks Kafka's protocol: the operator's settings and the fixed ones."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.broker.face.admission import MIB, ListenerLimits
from tidelog.config.schema import BrokerConfig


@dataclass(frozen=True, slots=True)
class KafkaLimits(ListenerLimits):
    """Bounds of one listener. Hitting one is a wait, or the end of the connection, never memory."""

    produce_bytes_max: int = 32 * MIB
    request_bytes_max: int = MIB
    """A request that is no Produce; and whoever has not logged in is heard for no longer."""
    login_bytes_max: int = 64 << 10
    pipeline_max: int = 32
    """Produce requests under way on one connection. All others wait for the end of those before them."""
    room_s_max: float = 5.0
    """A request that waits for room for this long is answered as one that there is none for."""
    fetch_bytes_max: int = 57_671_680
    idle_s: float = 600.0
    throttle_s_max: float = 30.0
    """A connection whose client has used up its share rests for no longer."""

    @classmethod
    def of(cls, config: BrokerConfig) -> KafkaLimits:
        """Returns the bounds that go with a broker's settings."""
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
