"""Ports for brokers that must know each other's before any of them runs.

A port that the system chooses is free only until its broker is killed: systems choose the local ports of outgoing
connections from the same range (Linux: 32768 and up), so that a restart on the same port may fail. So these ports are
below that range.

`HeldPorts` protect ports against other test processes while brokers stop and start: the ports are bound, but not
listened on, until they are released. A broker can listen on them, repeatedly, and no other search finds them free.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Collection
from itertools import chain
from typing import Final

from tidelog.testing.commands import HOST

PORTS: Final = range(20_000, 32_000)


class HeldPorts:
    """Ports reserved for this process, also while none of its brokers listens on them. Call `release` at the end."""

    def __init__(self) -> None:
        self._holders: list[socket.socket] = []

    def take(self, count: int, excluded: Collection[int] = ()) -> list[int]:
        """Returns ports that nobody listens on or holds. Raises `OSError`, and takes none, if there are too few.

        The search begins at a random port, so that concurrent test processes hardly ever collide.
        """
        begin = random.choice(PORTS)  # noqa: S311 - nobody is to be kept from guessing a port
        taken: list[int] = []
        holders: list[socket.socket] = []
        for port in chain(range(begin, PORTS.stop), range(PORTS.start, begin)):
            if len(taken) == count:
                break
            if port not in excluded and (holder := _hold(port)) is not None:
                taken.append(port)
                holders.append(holder)
        if len(taken) < count:
            for holder in holders:
                holder.close()
            raise OSError(f"there are no {count} free ports from {PORTS.start} to {PORTS.stop}")
        self._holders += holders
        return taken

    def release(self) -> None:
        """Releases all reserved ports. Idempotent."""
        for holder in self._holders:
            holder.close()
        self._holders.clear()


def free_ports(count: int, excluded: Collection[int] = ()) -> list[int]:
    """Returns ports that nobody listens on or holds now. Raises `OSError` if there are too few."""
    held = HeldPorts()
    try:
        return held.take(count, excluded)
    finally:
        held.release()


def _hold(port: int) -> socket.socket | None:
    """Binds the port and returns the socket; None if another process has bound it."""
    holder = socket.socket()
    try:
        holder.bind((HOST, port))
    except OSError:
        holder.close()
        return None
    # Set only now: it lets brokers, which set it too, listen beside this socket, and was not to have the bind above
    # succeed beside another one.
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return holder


def is_free(port: int) -> bool:
    """Returns True if a broker could listen on the port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
