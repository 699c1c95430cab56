"""The TLS handshake of an accepted connection: records whether it is done, and sends the alert if it fails.

If OpenSSL refuses a handshake, because a certificate is missing or has expired, it creates an alert for the other end.
Event loops close the connection without sending it, and the other end does not learn the cause. Here it is sent.

The event loop creates the SSL objects, so each handshake is found by the context in which its callbacks run.
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
        """`remote` is the other end's address, for people; `began_s` is the event loop's time at the start."""
        self._sock = sock
        self.remote = remote
        self.began_s = began_s
        self.is_done = False
        self._has_transport = False

    def hand_over(self) -> None:
        """Leaves the socket to a transport, which closes it."""
        self._has_transport = True

    def close_socket(self) -> None:
        """Closes the socket, unless a transport has it."""
        if not self._has_transport:
            self._sock.close()

    def tell(self, alert: bytes) -> None:
        """Sends the TLS alert, if the system takes it at once."""
        with contextlib.suppress(OSError):
            self._sock.send(alert)


UNDER_WAY: Final[ContextVar[Handshake | None]] = ContextVar("handshake", default=None)
"""Handshake of the connection that the current task sets up."""


class _Stream(ssl.SSLObject):
    outgoing: ssl.MemoryBIO

    def do_handshake(self) -> None:
        """Performs the next step of the handshake. Records its success, or sends the alert of its failure."""
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
    """The TLS context of a listener, which creates SSL objects that report to the current `Handshake`."""

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
        """Creates the SSL object of an accepted connection."""
        stream = super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        assert isinstance(stream, _Stream)
        stream.outgoing = outgoing
        return stream
