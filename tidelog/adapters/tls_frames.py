"""Frames inside TLS: the differences from frames in plain text (`frame_protocol.py`).

Receiving is the same: the event loop decrypts into the buffers that the protocol gives, so a large frame goes into its
own buffer there, too. Sending differs: each buffer would become TLS records of its own, so small buffers are joined
before; and encryption happens at once, so at most `TURN_BYTES` are encrypted in one turn of the event loop. Bytes that
wait for a later turn count as queued.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from typing import Final

from tidelog.adapters.frame_protocol import FrameProtocol, Receiver, TcpTimeouts
from tidelog.adapters.tls_contexts import OwnCertificate
from tidelog.model.broker_names import broker_name
from tidelog.model.ports import Buffer

RECORD_BYTES: Final = 16 << 10
"""Maximum payload bytes of one TLS record."""
TURN_BYTES: Final = 1 << 20


class EncryptedFrames(FrameProtocol):
    """A connection on a TLS transport: buffers are joined into TLS records, and sent in turns of `TURN_BYTES`."""

    def close(self) -> None:
        """Closes the connection as `FrameConnection.close` does. Frames that waited for a later turn of the event loop
        are sent first, all at once."""
        # All at once, in spite of `TURN_BYTES`: after `close` there is no other turn.
        while self._unsent and not self._is_closed:
            self._flush()
        super().close()

    def _flush(self) -> None:
        if not self._unsent or self._is_closed:
            return
        turn, rest = records(self._unsent, TURN_BYTES)
        self._unsent, self._unsent_bytes = rest, sum(map(len, rest))
        if rest:
            # The event loop serves others between two pieces: encryption is done on it.
            self._loop.call_soon(self._flush)
        self._transport.writelines(turn)


class TlsFrameProtocol(EncryptedFrames):
    """A TLS connection between brokers. `own` is the certificate that this broker presents on it."""

    def __init__(
        self,
        receiver: Receiver,
        timeouts: TcpTimeouts,
        own: OwnCertificate,
        *,
        http_address: Callable[[], str] | None = None,
    ) -> None:
        super().__init__(receiver, timeouts, http_address=http_address)
        self._own = own
        self._peer_name, self._peer_digest = "", b""

    @property
    def own_name(self) -> str | None:
        """This broker's name in its certificate."""
        return self._own.name

    @property
    def peer_name(self) -> str | None:
        """The other broker's name in its verified certificate; empty if the certificate names no broker."""
        return self._peer_name

    @property
    def certificates(self) -> tuple[bytes, bytes]:
        """SHA-256 digests of the certificate that this end presented, and of the one that it received."""
        return self._own.digest, self._peer_digest

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Reads the other end's certificate, which the handshake has verified, and sets the connection up."""
        # Before the receiver is made, as it judges the first frame by this name.
        self._peer_name = broker_name(transport.get_extra_info("peercert") or {})
        # The digest goes into the proof of the cluster's secret, so both ends have to have seen the same certificates.
        shown = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        self._peer_digest = hashlib.sha256(shown).digest() if shown else b""
        super().connection_made(transport)


def records(buffers: Sequence[Buffer], size: int) -> tuple[list[Buffer], list[Buffer]]:
    """Splits buffers after `size` bytes, and returns the buffers to send now and the rest. Of those to send, small ones
    are joined up to the size of a TLS record, and large ones stay as they are. A buffer across the split is cut."""
    out: list[Buffer] = []
    small: list[Buffer] = []
    small_bytes, room = 0, size
    rest: list[Buffer] = []
    for index, buffer in enumerate(buffers):
        length = len(buffer)
        if length > room:
            view = memoryview(buffer)
            rest = [view[room:], *buffers[index + 1 :]]
            buffer, length = view[:room], room  # noqa: PLW2901 -- the rest of this buffer belongs to the next call
        room -= length
        # Joined small buffers fill one record; each by itself would cost a record's header and tag.
        if small_bytes + length > RECORD_BYTES and small:
            out.append(b"".join(small))
            small, small_bytes = [], 0
        # A large buffer fills records of its own, so it is not copied.
        if length >= RECORD_BYTES:
            out.append(buffer)
        else:
            small.append(buffer)
            small_bytes += length
        if rest:
            break
    if small_bytes:
        out.append(b"".join(small))
    return out, rest
