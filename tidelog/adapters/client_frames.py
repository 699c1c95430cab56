"""Frames on connections from clients: the differences from frames between brokers (`frame_protocol.py`).

Clients are not trusted. Before each large frame the receiver decides whether there is room for it, and it may pause the
connection at any time: then nothing is read, the system's buffers fill, and the client waits. The client's certificate
is kept as parsed in the handshake.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast

from tidelog.adapters.frame_protocol import UNSENT_BYTES_HIGH, FrameProtocol, PortWords, Receiver, TcpTimeouts
from tidelog.adapters.tls_frames import EncryptedFrames
from tidelog.model.ports import ClientConnection, ClientReceiver

ClientReceiverMaker = Callable[[ClientConnection], ClientReceiver]

KEY_BYTES: Final = 2
"""Bytes at the beginning of a frame that name the kind of request, by which the receiver decides whether to read it."""


class ClientFrames(FrameProtocol):
    """The connection of one client: a `ClientConnection` with the pausing and the checks that untrusted clients
    need."""

    # A turn's answers would otherwise wait for the end of the turn, each of them made before anybody knows that the
    # client takes none.
    gathered_bytes_max = UNSENT_BYTES_HIGH

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
        self.is_clogged = False
        """True while the client does not take the answers that were sent."""
        self.certificate: dict[str, Any] | None = None
        """The client's verified certificate, as `ssl` parses it; None if it presented none."""

    @property
    def _client(self) -> ClientReceiver:
        return cast("ClientReceiver", self._receiver)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Reads the client's certificate, then sets the connection up."""
        self.certificate = transport.get_extra_info("peercert") or None
        super().connection_made(transport)

    def hold(self) -> None:
        """Stops reading, and delivering frames, until `go_on`."""
        self._is_held = True
        self._read_or_not()

    def go_on(self) -> None:
        """Ends `hold`: delivers the frames that have arrived, and reads again. Idempotent."""
        # Idempotent, as whoever holds may let go twice: what was kept must not be delivered twice.
        if not self._is_held:
            return
        self._is_held = False
        if not self._is_closed and self._kept:
            # Frames that came before the hold are delivered first, in their order; any of them may hold again.
            self._take(self._kept)
        self._read_or_not()

    def pause_writing(self) -> None:
        """Stops reading from a client that does not take its answers."""
        self.is_clogged = True
        self._read_or_not()

    def resume_writing(self) -> None:
        """Reads again from a client that takes its answers again, and notifies the receiver."""
        self.is_clogged = False
        self._read_or_not()
        if not self._is_closed:
            self._client.unclogged()

    def _read_or_not(self) -> None:
        if self._is_closed:
            return
        if self._is_held or self.is_clogged:
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
    """The connection of one client with TLS."""
