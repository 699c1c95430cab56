"""HTTP/1.1 as cheaply as a Python process can offer it, and nothing hidden: what became of each request is one number.

`Link` is one connection on an event loop with one request under way, for thousands of them. `plain` is a client on a
thread: it sends all of its body before it reads, as most libraries do, so that a broker that closes too early is seen
as such a client sees it.
"""

from __future__ import annotations

import asyncio
import enum
import socket
import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, cast

ANSWER_S_MAX: Final = 45.0
"""A request without an answer for so long gets none: the brokers' own deadlines are 30 s."""
KEPT_BYTES: Final = 65_536
"""The most of an answer that is kept."""
DEFINITE: Final = {503, 507}


class Ended(enum.IntEnum):
    """The ends of a request that are no status."""

    RESET = -1
    CLOSED = -2
    UNANSWERED = -3
    UNCONNECTED = -4


def named(outcome: int) -> str:
    """Returns an outcome as people read it."""
    return str(outcome) if outcome > 0 else Ended(outcome).name.lower()


def is_definite(outcome: int) -> bool:
    """Returns whether nothing was appended, for sure."""
    return outcome in DEFINITE or outcome == Ended.UNCONNECTED or 400 <= outcome < 500


class Place(NamedTuple):
    """A broker has its HTTP listener here."""

    host: str
    port: int


def head(method: str, place: Place, path: str, *fields: str) -> bytes:
    """Returns the head of a request."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {place.host}:{place.port}", *fields, "", ""]
    return "\r\n".join(lines).encode()


Told = Callable[["Link", int, float], None]


class Link(asyncio.Protocol):
    """A connection. `on_lost` is told of its end, after whoever waits for an answer."""

    def __init__(self, place: Place, on_lost: Callable[[Link], None] | None = None) -> None:
        self.place = place
        self.is_lost = False
        self.was_reset = False
        self.unasked = 0
        """The status of an answer that came unasked: too many connections."""
        self.body = b""
        """The begin of the last answer's body."""
        self.sent_s = 0.0
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._told: Told | None = None
        self._got = bytearray()
        self._left = -1

    async def open(self, *, buffer_bytes: int = 0) -> bool:
        """Connects; False if nobody takes the connection."""
        loop = asyncio.get_running_loop()
        wire = socket.socket()
        wire.setblocking(False)
        if buffer_bytes:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        try:
            await loop.sock_connect(wire, self.place)
            await loop.create_connection(lambda: self, sock=wire)
        except OSError:
            wire.close()
            self.is_lost = True
        return not self.is_lost

    def ask(self, request: bytes, told: Told) -> None:
        """Sends a request; `told` hears once what became of it, and after how many seconds."""
        assert self._told is None and self._transport is not None
        self.sent_s = time.monotonic()
        self._told = told
        if self.is_lost or self.unasked:
            self._tell(self.unasked or (Ended.RESET if self.was_reset else Ended.CLOSED))
        else:
            self._transport.write(request)

    async def asked(self, request: bytes, seconds_max: float = ANSWER_S_MAX) -> tuple[int, float]:
        """As `ask`: returns the outcome and the seconds."""
        found: asyncio.Future[tuple[int, float]] = asyncio.get_running_loop().create_future()
        self.ask(request, lambda _, outcome, seconds: None if found.done() else found.set_result((outcome, seconds)))
        try:
            return await asyncio.wait_for(found, seconds_max)
        except TimeoutError:
            self._told = None
            self.close()
            return Ended.UNANSWERED, seconds_max

    def write(self, data: bytes) -> None:
        """Sends something that is not answered, as it is no whole request."""
        if self._transport is not None and not self.is_lost:
            self._transport.write(data)

    def pause(self) -> None:
        """Stops reading: a client that has stalled."""
        if self._transport is not None and not self.is_lost:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Reads on."""
        if self._transport is not None and not self.is_lost:
            self._transport.resume_reading()

    def close(self) -> None:
        """Ends the connection without ceremony."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by its class

    def connection_lost(self, exc: BaseException | None) -> None:
        self.is_lost, self.was_reset = True, exc is not None
        if self._told is not None:
            self._tell(Ended.RESET if exc is not None else Ended.CLOSED)
        if self._on_lost is not None:
            self._on_lost(self)

    def data_received(self, data: bytes) -> None:
        if self._left < 0:
            self._got += data
            if not self._take_head():
                return
        else:
            self._left -= len(data)
            if len(self._got) < KEPT_BYTES:
                self._got += data
        if self._left <= 0:
            self._answered()

    def _take_head(self) -> bool:
        """Returns whether the head is there, and how much of the body is not. Chunked answers end with the link."""
        end = self._got.find(b"\r\n\r\n")
        if end < 0:
            return False
        at = self._got.find(b"Content-Length: ", 0, end)
        size = int(self._got[at + 16 : self._got.index(b"\r", at)]) if at >= 0 else 1 << 62
        self._left = size - (len(self._got) - end - 4)
        return True

    def _answered(self) -> None:
        status = int(self._got[9:12])
        self.body = bytes(self._got[self._got.find(b"\r\n\r\n") + 4 :])
        self._got.clear()
        self._left = -1
        if self._told is None:
            self.unasked = status
        else:
            self._tell(status)

    def _tell(self, outcome: int) -> None:
        told, self._told = self._told, None
        assert told is not None
        told(self, outcome, time.monotonic() - self.sent_s)


class Answer(NamedTuple):
    """The outcome of one request of a plain client."""

    outcome: int
    seconds: float
    body: bytes = b""


def plain(place: Place, pieces: Iterable[bytes | memoryview], seconds_max: float = ANSWER_S_MAX) -> Answer:
    """A whole request on a connection of its own, sent to its end, then its answer read to the end."""
    begun_s, got = time.monotonic(), bytearray()
    try:
        with socket.create_connection(place, seconds_max) as wire:
            for piece in pieces:
                wire.sendall(piece)
            left = -1
            while left < 0 or len(got) < left:
                data = wire.recv(1 << 18)
                if not data:
                    break
                got += data
                if left < 0 and (end := got.find(b"\r\n\r\n")) >= 0:
                    at = got.find(b"Content-Length: ", 0, end)
                    left = end + 4 + int(got[at + 16 : got.index(b"\r", at)]) if at >= 0 else 1 << 62
    except TimeoutError:
        return Answer(Ended.UNANSWERED, time.monotonic() - begun_s)
    except ConnectionRefusedError:
        return Answer(Ended.UNCONNECTED, time.monotonic() - begun_s)
    except OSError:
        return Answer(Ended.RESET, time.monotonic() - begun_s)
    seconds = time.monotonic() - begun_s
    is_whole = left >= 0 and (len(got) >= left or (left == 1 << 62 and got.endswith(b"0\r\n\r\n")))
    if not is_whole:
        return Answer(Ended.CLOSED, seconds)
    return Answer(int(got[9:12]), seconds, bytes(got[got.index(b"\r\n\r\n") + 4 :]))


def get(place: Place, path: str, *fields: str, seconds_max: float = ANSWER_S_MAX) -> Answer:
    """A plain GET."""
    return plain(place, [head("GET", place, path, "Connection: close", *fields)], seconds_max)
