"""A listener with TLS: accepts connections, and completes the handshake of each before its protocol is created.

An event loop would do both, but does not reveal which handshakes are under way, how many they are, and why they fail.
Here their number is bounded. At the bound new connections wait in the system's backlog until a handshake ends, or until
the oldest one has taken `HONEST_S` seconds and is cut off: an honest handshake takes two round trips, and that of a
silent client would last until the deadline.

The first byte of a connection tells TLS from plain text. Plain HTTP is answered in HTTP, with the hint to use TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import structlog

from tidelog.adapters.tls_handshake import UNDER_WAY, Handshake

HANDSHAKE_S: Final = 5.0
HANDSHAKES_MAX: Final = 128
"""Maximum handshakes that one listener has under way."""
HONEST_S: Final = 0.5
ACCEPTED_AT_ONCE: Final = 16
"""Maximum connections that are accepted in one turn of the event loop."""
REST_S: Final = 1.0
"""Seconds for which nothing is accepted after the system has run out of file descriptors."""
FAREWELL_S: Final = 1.0
READ_BYTES: Final = 64 << 10
COMPLAINT_S: Final = 60.0
COMPLAINTS_MAX: Final = 64

TLS_HANDSHAKE: Final = b"\x16"
"""First byte of a TLS stream: the type of a record with a part of the handshake."""
PLAIN_TEXT: Final = "plain text"
HANDSHAKE: Final = "handshake"
TOO_MANY: Final = "too many handshakes"
_BODY: Final = b'{"error_code":40001,"message":"this port speaks TLS: use https://, and security.protocol=SSL"}'
PLAIN_ANSWER: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b"
) % (len(_BODY), _BODY)

logger = structlog.get_logger("tidelog.tls")


class Refusal(NamedTuple):
    """Report on a connection that was refused, or whose handshake failed."""

    listener: str
    remote: str
    """Address of the other end, with its port."""
    cause: str
    why: str


@dataclass(frozen=True, slots=True)
class TlsTerms:
    """The TLS settings of a listener."""

    name: str
    """Name of the listener, for people."""
    context: Callable[[], ssl.SSLContext]
    """Returns the TLS context in force, for each new connection."""
    refused: Callable[[Refusal], None]
    """Callback for each connection that was refused, or whose handshake failed."""
    shutdown_s: float
    """Seconds that a closed connection has to deliver what was sent, and to shut TLS down."""


class TlsListener:
    """A listening socket with TLS. It has the interface of an asyncio server as far as callers use it."""

    def __init__(
        self, sock: socket.socket, make: Callable[[], asyncio.BaseProtocol], terms: TlsTerms, backlog: int
    ) -> None:
        """Takes a bound socket; `make` creates the protocol of a connection after its handshake."""
        self.sockets: Sequence[socket.socket] = (sock,)
        self._sock, self._make, self._terms, self._backlog = sock, make, terms, backlog
        self._loop = asyncio.get_running_loop()
        self._under_way: dict[asyncio.Task[None], Handshake] = {}
        """Connections whose handshake is under way, by their task, in order of arrival."""
        self._resting: asyncio.TimerHandle | None = None
        """Timer that ends a pause in accepting; None while connections are accepted."""
        self._is_full = False
        """True if accepting is paused because too many handshakes are under way."""
        self._is_closed = False
        self._complaints: dict[str, float] = {}

    async def start_serving(self) -> None:
        """Accepts connections from now on."""
        self._sock.setblocking(False)
        self._sock.listen(self._backlog)
        self._listen()

    def close(self) -> None:
        """Stops accepting connections and ends the handshakes under way; other connections stay open. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._resting is not None:
            self._resting.cancel()
        self._loop.remove_reader(self._sock)
        self._sock.close()
        for task, handshake in self._under_way.items():
            # Those that are done belong to their protocols, and are closed by whoever has these.
            if not handshake.is_done:
                task.cancel()

    # -- accepting ---------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        self._resting, self._is_full = None, False
        self._loop.add_reader(self._sock, self._accept)

    def _rest(self, seconds: float) -> None:
        self._loop.remove_reader(self._sock)
        self._resting = self._loop.call_later(seconds, self._listen)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            # Those that wait in the system's backlog cost this process no descriptor and no memory.
            if len(self._under_way) >= HANDSHAKES_MAX and not self._has_room():
                return
            try:
                sock, address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no descriptors: the system keeps the others waiting
                logger.error("connections cannot be accepted", listener=self._terms.name, reason=str(error))
                self._rest(REST_S)
                return
            sock.setblocking(False)
            self._begin(sock, f"{address[0]}:{address[1]}")

    def _begin(self, sock: socket.socket, remote: str) -> None:
        handshake = Handshake(sock, remote, self._loop.time())
        task = self._loop.create_task(self._take(sock, handshake))
        # The event loop has only a weak reference to its tasks.
        self._under_way[task] = handshake
        task.add_done_callback(partial(self._ended, handshake))

    def _has_room(self) -> bool:
        """Returns True if another handshake may begin. If `HANDSHAKES_MAX` are under way, the oldest is cut off first,
        if it has taken `HONEST_S` seconds; else accepting pauses until it has, or until a handshake ends, and the
        result is False."""
        # The oldest, as dictionaries keep the order of insertion.
        task, handshake = next(iter(self._under_way.items()))
        left_s = handshake.began_s + HONEST_S - self._loop.time()
        # Younger ones are never given up: a stranger who opens many connections would push the honest ones out.
        if left_s > 0 or handshake.is_done:
            self._rest(max(left_s, 0.0))
            self._is_full = True
            return False
        del self._under_way[task]
        task.cancel()
        self._refuse(handshake.remote, TOO_MANY, f"more than {HANDSHAKES_MAX} at a time, and it is the oldest")
        return True

    def _ended(self, handshake: Handshake, task: asyncio.Task[None]) -> None:
        # Not by the task itself: cancelled before its first step, it runs no `finally`.
        handshake.close_socket()
        self._under_way.pop(task, None)
        if self._is_full and self._resting is not None and not self._is_closed:
            self._resting.cancel()
            self._listen()
        if not task.cancelled():
            task.result()

    # -- one connection ----------------------------------------------------------------------------------------------

    async def _take(self, sock: socket.socket, handshake: Handshake) -> None:
        remote = handshake.remote
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                await self._wait_readable(sock)
                # Peeked at, not read: the handshake needs this byte.
                first = sock.recv(1, socket.MSG_PEEK)
            if first == TLS_HANDSHAKE:
                handshake.hand_over()
                # In this task's context, which the callbacks of the transport inherit.
                UNDER_WAY.set(handshake)
                await self._loop.connect_accepted_socket(
                    self._make,
                    sock,
                    ssl=self._terms.context(),
                    ssl_handshake_timeout=HANDSHAKE_S,
                    ssl_shutdown_timeout=self._terms.shutdown_s,
                )
            elif first:
                self._refuse(remote, PLAIN_TEXT, "it speaks no TLS")
                await self._say_goodbye(sock)
        except TimeoutError:
            self._refuse(remote, HANDSHAKE, f"it took longer than {HANDSHAKE_S} s")
        except ssl.SSLError as error:
            self._refuse(remote, HANDSHAKE, words_of(error))
        except OSError as error:
            self._refuse(remote, HANDSHAKE, f"it ended: {str(error) or type(error).__name__}")

    async def _wait_readable(self, sock: socket.socket) -> None:
        readable = asyncio.Event()
        self._loop.add_reader(sock, readable.set)
        try:
            await readable.wait()
        finally:
            self._loop.remove_reader(sock)

    async def _say_goodbye(self, sock: socket.socket) -> None:
        """Answers a client that seems to speak HTTP, and reads on for a while, so that no TCP reset overtakes the
        answer."""
        if not sock.recv(READ_BYTES)[:1].isalpha():
            return
        sock.send(PLAIN_ANSWER)
        # Closing a socket with unread bytes sends a reset, which may overtake the answer: so the rest is read first.
        sock.shutdown(socket.SHUT_WR)
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(FAREWELL_S):
                await self._wait_readable(sock)
                while sock.recv(READ_BYTES):
                    await self._wait_readable(sock)

    def _refuse(self, remote: str, cause: str, why: str) -> None:
        """Reports and counts a refused connection; logs it too, but not again and again for the same machine."""
        self._terms.refused(Refusal(self._terms.name, remote, cause, why))
        host, now_s = remote.rpartition(":")[0], self._loop.time()
        if now_s < self._complaints.get(host, now_s):
            return
        # Taken out and put in again, so that the oldest complaint is the first in the dictionary.
        self._complaints.pop(host, None)
        self._complaints[host] = now_s + COMPLAINT_S
        if len(self._complaints) > COMPLAINTS_MAX:
            del self._complaints[next(iter(self._complaints))]
        logger.warning("a connection is refused", listener=self._terms.name, remote=remote, cause=cause, reason=why)


async def tls_listeners(
    make: Callable[[], asyncio.BaseProtocol], host: str, port: int, terms: TlsTerms, *, backlog: int
) -> list[TlsListener]:
    """Binds an address, or all addresses of a host name, without accepting connections yet. Raises `OSError`."""
    bound = await asyncio.get_running_loop().create_server(make, host, port, start_serving=False)
    # Under descriptors that no event loop knows; the loop closes its own with the server.
    listening = [sock.dup() for sock in bound.sockets]
    bound.close()
    return [TlsListener(sock, make, terms, backlog) for sock in listening]


def words_of(error: ssl.SSLError) -> str:
    """Returns a text for people that says why a handshake failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    return (error.reason or str(error)).replace("_", " ").lower()
