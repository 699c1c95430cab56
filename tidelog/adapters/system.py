"""The real clock and the real entropy."""

from __future__ import annotations

import random
import secrets
import socket
import time


def host_name() -> str:
    """This machine's name, as others may know it."""
    return socket.gethostname()


class SystemClock:
    """`Clock` on the operating system's clocks."""

    def monotonic_s(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class SystemEntropy:
    """`Entropy` from the operating system."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def token_hex(self, bytes_count: int) -> str:
        return secrets.token_hex(bytes_count)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)
