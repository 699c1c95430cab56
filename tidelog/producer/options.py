"""A producer's settings, checked once. Names, defaults and meanings are Kafka's unless the text says otherwise."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.model.batch_header import Compression
from tidelog.model.errors import InvalidRequest

REQUEST_BYTES_LIMIT = 32 << 20
BATCH_BYTES_MIN = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """What `Producer` takes as keyword arguments, in the units its parts count in."""

    acks: str
    linger_s: float
    batch_bytes: int
    compression: Compression
    idempotent: bool
    buffer_memory: int
    max_block_s: float
    request_bytes_max: int
    request_timeout_s: float
    delivery_timeout_s: float

    def __post_init__(self) -> None:
        if self.linger_s < 0 or self.max_block_s < 0:
            raise InvalidRequest("linger_ms and max_block_ms must not be negative")
        if self.request_timeout_s <= 0 or self.delivery_timeout_s <= 0:
            raise InvalidRequest("request_timeout_ms and delivery_timeout_ms must be positive")
        if not BATCH_BYTES_MIN <= self.batch_bytes <= self.request_bytes_max <= REQUEST_BYTES_LIMIT:
            raise InvalidRequest(
                f"batch_bytes ({self.batch_bytes}) must be between {BATCH_BYTES_MIN} and request_bytes_max "
                f"({self.request_bytes_max}), and that at most {REQUEST_BYTES_LIMIT}"
            )
        if self.buffer_memory < self.request_bytes_max:
            raise InvalidRequest(
                f"buffer_memory ({self.buffer_memory}) must hold one request ({self.request_bytes_max} bytes)"
            )


def parse_acks(acks: str | int) -> str:
    """`all`, `1` or `0` as the query parameter; -1 is Kafka's other name for all."""
    text = str(acks).lower()
    if text not in ("all", "-1", "1", "0"):
        raise InvalidRequest(f"acks must be 'all', 1 or 0, not {acks!r}")
    return "all" if text == "-1" else text
