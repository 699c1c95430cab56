"""Ports for brokers that must know each other's before any of them runs.

A port that the system chooses is free only until its broker is killed: systems take the near ends of connections from
the same range (Linux: 32768 and up), and restarting on it may then fail. So these are taken from below that range.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Collection
from itertools import chain
from typing import Final

from tidelog.testing.commands import HOST

PORTS: Final = range(20_000, 32_000)


def free_ports(count: int, excluded: Collection[int] = ()) -> list[int]:
    """Ports that nobody listens on now. Raises `OSError` if there are too few.

    The search begins anywhere, so that test processes side by side hardly ever meet.
    """
    begin = random.choice(PORTS)  # noqa: S311 - nobody is to be kept from guessing a port
    found: list[int] = []
    for port in chain(range(begin, PORTS.stop), range(PORTS.start, begin)):
        if len(found) == count:
            break
        if port not in excluded and is_free(port):
            found.append(port)
    if len(found) < count:
        raise OSError(f"there are no {count} free ports from {PORTS.start} to {PORTS.stop}")
    return found


def is_free(port: int) -> bool:
    """True if a broker could listen there now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
