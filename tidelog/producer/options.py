"""The validated settings of a producer. Names, defaults and meanings are Kafka's, unless stated otherwise."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.model.batch_header import Compression
from tidelog.model.errors import InvalidRequest

REQUEST_SIZE_LIMIT = 32 << 20
BATCH_SIZE_MIN = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """The validated keyword arguments of `Producer`, with times in seconds."""

    acks: str
    linger_s: float
    batch_size: int
    compression: Compression
    is_idempotent: bool
    buffer_memory: int
    max_block_s: float
    max_request_size: int
    request_timeout_s: float
    delivery_timeout_s: float

    @property
    def try_s_min(self) -> float:
        """Minimum seconds left for an attempt to share a request with other partitions, whose attempts a shorter
        timeout would cut off."""
        return min(self.request_timeout_s, self.delivery_timeout_s) / 2

    def __post_init__(self) -> None:
        if self.linger_s < 0 or self.max_block_s < 0:
            raise InvalidRequest("linger_ms and max_block_ms must not be negative")
        if self.request_timeout_s <= 0 or self.delivery_timeout_s <= 0:
            raise InvalidRequest("request_timeout_ms and delivery_timeout_ms must be positive")
        if not BATCH_SIZE_MIN <= self.batch_size <= self.max_request_size <= REQUEST_SIZE_LIMIT:
            raise InvalidRequest(
                f"batch_size ({self.batch_size}) must be between {BATCH_SIZE_MIN} and max_request_size "
                f"({self.max_request_size}), and that at most {REQUEST_SIZE_LIMIT}"
            )
        if self.buffer_memory < self.max_request_size:
            raise InvalidRequest(
                f"buffer_memory ({self.buffer_memory}) must hold one request ({self.max_request_size} bytes)"
            )


def parse_acks(acks: str | int) -> str:
    """Returns `acks` as a query parameter, `all`, `1` or `0`. -1 means `all`, as in Kafka."""
    text = str(acks).lower()
    if text not in ("all", "-1", "1", "0"):
        raise InvalidRequest(f"acks must be 'all', 1 or 0, not {acks!r}")
    return "all" if text == "-1" else text
