"""The TLS handshake of an accepted connection: whether it is done, and the alert for the other end if it fails.

OpenSSL has an alert for the other end when it refuses a handshake, such as that a certificate is required, or has
expired. Event loops close the connection without sending it, and the other end is left to guess. Here it is sent.

The event loop makes the objects, so a handshake finds its own by the context in which its callbacks run.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from contextvars import ContextVar
from typing import Final


class Handshake:
    """The handshake of one accepted connection."""

    def __init__(self, sock: socket.socket, remote: str, began_s: float) -> None:
        """`remote` is for people, `began_s` the event loop's time."""
        self._sock = sock
        self.remote = remote
        self.began_s = began_s
        self.is_done = False

    def tell(self, alert: bytes) -> None:
        """Sends what is left to say, if the system takes it at once."""
        with contextlib.suppress(OSError):
            self._sock.send(alert)


UNDER_WAY: Final[ContextVar[Handshake | None]] = ContextVar("handshake", default=None)
"""Set in the task that has the connection made."""


class _Stream(ssl.SSLObject):
    outgoing: ssl.MemoryBIO

    def do_handshake(self) -> None:
        """Takes the next step of the handshake."""
        # The callbacks of a connection run in the context of the task that began it, so this is its own.
        handshake = UNDER_WAY.get()
        try:
            super().do_handshake()
        # Subclasses of `SSLError`, and no failures: the handshake waits for the other end.
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            if handshake is not None:
                # The alert is in the buffer, but the event loop closes the connection without looking.
                handshake.tell(self.outgoing.read())
            raise
        if handshake is not None:
            handshake.is_done = True


class ServerContext(ssl.SSLContext):
    """A context of a listener."""

    def __new__(cls) -> ServerContext:
        context = super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)
        # The standard library's way to have its contexts make objects of another class.
        context.sslobject_class = _Stream
        return context

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Begins a handshake."""
        stream = super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        assert isinstance(stream, _Stream)
        stream.outgoing = outgoing
        return stream
