"""Frames of clients: what differs from frames between brokers (`frame_protocol.py`).

A client is believed nothing. Whoever serves it says before each large frame whether there is room for it, and may hold
the connection at any time: then it is not read, its buffers in the system fill, and the client waits. The certificate
that it has shown is kept as the handshake has parsed it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from tidelog.adapters.frame_protocol import UNSENT_BYTES_HIGH, FrameProtocol, PortWords, Receiver, TcpTimeouts
from tidelog.adapters.tls_frames import EncryptedFrames
from tidelog.model.ports import Buffer, ClientConnection, ClientReceiver

ClientReceiverMaker = Callable[[ClientConnection], ClientReceiver]

KEY_BYTES: Final = 2
"""A frame is judged by its first bytes, which say what it asks for."""


class ClientFrames(FrameProtocol):
    """Receives from one client: a `ClientConnection`."""

    def __init__(
        self,
        receiver: ClientReceiverMaker,
        timeouts: TcpTimeouts,
        words: PortWords,
        http_address: Callable[[], str],
        frame_bytes_max: int,
    ) -> None:
        # With an address for HTTP clients, so a connection that somebody else opened: it is not read while it takes no
        # answers.
        super().__init__(cast("Receiver", receiver), timeouts, http_address=http_address, words=words)
        self.frame_bytes_max = frame_bytes_max
        self._is_clogged = False
        self._certificate: dict[str, Any] | None = None

    @property
    def certificate(self) -> dict[str, Any] | None:
        """See the port."""
        return self._certificate

    @property
    def is_clogged(self) -> bool:
        """See the port."""
        return self._is_clogged

    @property
    def _client(self) -> ClientReceiver:
        return cast("ClientReceiver", self._receiver)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Reads the certificate before the receiver is made."""
        self._certificate = transport.get_extra_info("peercert") or None
        super().connection_made(transport)

    def hold(self) -> None:
        """See the port."""
        self._is_held = True
        self._read_or_not()

    def go_on(self) -> None:
        """See the port."""
        # Idempotent, as whoever holds may let go twice: what was kept must not be delivered twice.
        if not self._is_held:
            return
        self._is_held = False
        if not self._is_closed and self._kept:
            # Frames that came before the hold are delivered first, in their order; any of them may hold again.
            self._take(self._kept)
        self._read_or_not()

    def send(self, buffers: Sequence[Buffer]) -> None:
        """See the port. What is much leaves at once, so that a clogged connection is known before more is answered."""
        super().send(buffers)
        # A turn's answers would otherwise wait for the end of the turn, each of them made before anybody knows that the
        # client takes none.
        if self._unsent_bytes > UNSENT_BYTES_HIGH:
            self._flush()

    def pause_writing(self) -> None:
        """Stops listening to a client that takes nothing."""
        self._is_clogged = True
        self._read_or_not()

    def resume_writing(self) -> None:
        """Listens again to a client that takes answers again."""
        self._is_clogged = False
        self._read_or_not()
        if not self._is_closed:
            self._client.unclogged()

    def _read_or_not(self) -> None:
        if self._is_closed:
            return
        if self._is_held or self._is_clogged:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _may_begin(self, length: int, begun: bytes) -> bool:
        # Until the key is there nobody can judge it. Nothing is lost by waiting: a frame that has not come so far holds
        # 6 bytes.
        return len(begun) >= KEY_BYTES and self._client.may_begin(length, begun)

    def _break_off(self, why: str) -> None:
        self._kept = b""
        # What was answered is still sent; what came is not delivered, as frames behind a bad one have no beginning.
        self.close()
        self._client.broken_off(why)


class EncryptedClientFrames(EncryptedFrames, ClientFrames):
    """The same on a transport that encrypts."""
