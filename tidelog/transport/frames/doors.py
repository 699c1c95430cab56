"""Connections of a client to the brokers' listeners for Kafka's protocol, by the brokers' base URLs.

A broker whose listener cannot be used (nothing listens, it speaks another protocol, it offers no login that this client
has, it stays silent for `OPEN_S_MAX`) is skipped for `SHUT_S`, with one line in the log; records are sent over HTTP
meanwhile. No record has been sent before the listener is found unusable. A login by SCRAM that fails is an error
instead: over HTTP the password is shown. A request that has less time than `OPEN_S_MAX` fails alone at its deadline.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from tidelog.model.errors import NotAuthenticated, TidelogError
from tidelog.model.kafka_wire import Malformed
from tidelog.model.ports import FrameConnection
from tidelog.transport.errors import ClientClosed, ConnectFailed, NoAnswer
from tidelog.transport.frames.introduction import Introduction
from tidelog.transport.frames.line import Line

logger = logging.getLogger(__name__)

SHUT_S: Final = 30.0
OPEN_S_MAX: Final = 5.0
"""Seconds for connecting, checking versions and authenticating."""
KEEPALIVE_S: Final = 20.0
"""Seconds of idleness after which a connection is not reused, because the broker may be about to close it."""

Dial = Callable[[str, int, Callable[[FrameConnection], Line], ssl.SSLContext | None], Awaitable[FrameConnection]]


class _ShutDoor(NamedTuple):
    until_s: float
    reason: str


class Doors:
    """The pool of one client's connections to the brokers' listeners for Kafka's protocol."""

    def __init__(
        self, dial: Dial, *, context: ssl.SSLContext | None, introduction: Introduction, is_only_way: bool = False
    ) -> None:
        """`is_only_way`: records are not sent over HTTP either while a listener cannot be used."""
        self._dial = dial
        self._consequence = "no records are sent or fetched" if is_only_way else "records go by HTTP"
        self._context = context
        self._introduction = introduction
        self._addresses: dict[str, tuple[str, int]] = {}
        self._shut_doors: dict[str, _ShutDoor] = {}
        self._silent_s: dict[str, float] = {}
        """Seconds for which connections to a broker were awaited in vain since the last one that opened."""
        self._idle: dict[str, list[Line]] = {}
        self._lines: dict[Line, None] = {}
        """All open connections, including those whose versions are being checked."""
        self._closings = 0
        """The number of calls of `close`; a connection whose opening began before the last call is not kept."""

    def learn(self, addresses: dict[str, str]) -> None:
        """Stores the addresses of the brokers' Kafka listeners (`host:port`) by the brokers' base URLs."""
        listening = {}
        for base, text in addresses.items():
            host, _, port = text.rpartition(":")
            if host and port.isascii() and port.isdigit():
                listening[base] = (host.strip("[]"), int(port))
        self._addresses = listening

    def is_open(self, base: str) -> bool:
        """Returns True if records may be sent to this broker by Kafka's protocol."""
        if base not in self._addresses:
            return False
        shut = self._shut_doors.get(base)
        return shut is None or asyncio.get_running_loop().time() >= shut.until_s

    def why_shut(self, base: str) -> str:
        """Returns why the listener of a broker cannot be used."""
        shut = self._shut_doors.get(base)
        return "it does not listen for that" if shut is None else shut.reason

    async def take(self, base: str, timeout_s: float) -> Line | None:
        """Returns a connection for one request, to be given back with `give_back`; None if the listener cannot be used.

        Raises `ConnectFailed` if none opens within `timeout_s`, `NotAuthenticated` if a login by SCRAM fails,
        `ClientClosed` if the client is closed meanwhile.
        """
        if not self.is_open(base):
            return None
        earliest_s = asyncio.get_running_loop().time() - KEEPALIVE_S
        idle = self._idle.setdefault(base, [])
        while idle:
            line = idle.pop()
            if line.is_open and line.idle_since_s >= earliest_s:
                return line
            self._drop(line)
        return await self._open(base, min(timeout_s, OPEN_S_MAX))

    def give_back(self, base: str, line: Line) -> None:
        """Returns a connection to the pool, after its request has ended."""
        if line.is_open:
            line.idle_since_s = asyncio.get_running_loop().time()
            self._idle.setdefault(base, []).append(line)
        else:
            self._drop(line)

    def close(self) -> None:
        """Closes all connections, including those that are being opened. Idempotent."""
        self._closings += 1
        for line in list(self._lines):
            self._drop(line)

    def _drop(self, line: Line) -> None:
        self._lines.pop(line, None)
        line.close()

    async def _open(self, base: str, timeout_s: float) -> Line | None:
        host, port = self._addresses[base]
        closings = self._closings
        lines: list[Line] = []

        def receiver(connection: FrameConnection) -> Line:
            lines.append(Line(connection))
            self._lines[lines[0]] = None
            return lines[0]

        try:
            async with asyncio.timeout(timeout_s):
                await self._dial(host, port, receiver, self._context)
                await self._introduction.give(lines[0], base)
            self._require_open_since(closings)
        except BaseException as error:
            for line in lines:
                self._drop(line)
            if isinstance(error, NotAuthenticated) or not isinstance(error, OSError | TimeoutError | TidelogError):
                raise
            self._require_open_since(closings)
            if isinstance(error, TimeoutError):
                self._require_patience(base, f"{host}:{port}", timeout_s)
            self._shut(base, f"{host}:{port}", error)
            return None
        self._shut_doors.pop(base, None)
        self._silent_s.pop(base, None)
        return lines[0]

    def _require_patience(self, base: str, address: str, waited_s: float) -> None:
        """Raises `ConnectFailed` if a listener may yet turn out to be usable: so far it has been silent for less than
        `OPEN_S_MAX` in all, since its requests had so little time."""
        self._silent_s[base] = silent_s = self._silent_s.get(base, 0.0) + waited_s
        if silent_s < OPEN_S_MAX:
            raise ConnectFailed(f"{address} has opened no connection within {waited_s:.3g} s")
        del self._silent_s[base]

    def _require_open_since(self, closings: int) -> None:
        if self._closings != closings:
            raise ClientClosed("this client is closed")

    def _shut(self, base: str, address: str, error: Exception) -> None:
        reason = error.message if isinstance(error, TidelogError) else str(error) or type(error).__name__
        if isinstance(error, (Malformed, NoAnswer)):
            reason = f"it does not speak Kafka's protocol as it should ({reason})"
        logger.warning("%s: %s, as %s cannot be used: %s", base, self._consequence, address, reason)
        self._shut_doors[base] = _ShutDoor(asyncio.get_running_loop().time() + SHUT_S, reason)
