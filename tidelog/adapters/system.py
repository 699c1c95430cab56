"""The real clock, the real entropy, and the one thread that waits for the disk."""

from __future__ import annotations

import asyncio
import random
import secrets
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


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


class DiskThread:
    """`BlockingRunner`: one thread, so that fsyncs queue behind each other and gather what waits (group commit)."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="tidelog-disk")

    async def run(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    def close(self) -> None:
        """Waits for the call under way, if any."""
        self._executor.shutdown(wait=True)
