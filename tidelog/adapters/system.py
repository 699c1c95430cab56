"""The real clock, the real entropy, and threads of this process."""

from __future__ import annotations

import random
import secrets
import socket
import time
from typing import TypeVar

T = TypeVar("T")


def host_name() -> str:
    """Returns the name of this machine in the network."""
    return socket.gethostname()


def addresses_of(host: str) -> list[str]:
    """Returns the IP addresses of a host name; none if it cannot be resolved."""
    try:
        return [str(info[4][0]) for info in socket.getaddrinfo(host, None)]
    except OSError:
        return []


def thread_busy_s() -> float:
    """Returns the seconds that the calling thread has run or waited for a processor in all; on systems other than Linux
    the seconds that it has run."""
    try:
        # In ns: time on a processor, time runnable and waiting for one, and a count of turns. `thread_time` alone does
        # not show that others keep this machine busy.
        with open("/proc/thread-self/schedstat") as file:
            ran_ns, waited_ns, _ = file.read().split()
    except (OSError, ValueError):
        return time.thread_time()
    return (int(ran_ns) + int(waited_ns)) / 1e9


class SystemClock:
    """The operating system's clocks."""

    monotonic_s = staticmethod(time.monotonic)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class SystemEntropy:
    """Random numbers from the operating system."""

    def __init__(self) -> None:
        # Not seeded: two brokers that start in the same moment must not draw the same backoffs, nor the same ids.
        self._random = random.SystemRandom()

    def token_hex(self, bytes_count: int) -> str:
        return secrets.token_hex(bytes_count)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)
