"""A client's connections to a broker's listener for Kafka's protocol, in plain text or with TLS.

Received bytes are split into frames as on all connections (`frame_protocol.py`). Frames have a maximum size; bytes that
are no valid frame close the connection, and the receiver is notified.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Final, TypeVar

from tidelog.adapters.frame_protocol import FrameProtocol, PortWords, Receiver, TcpTimeouts
from tidelog.adapters.tls_frames import EncryptedFrames
from tidelog.model.ports import FrameConnection

T = TypeVar("T")

ANSWER_BYTES_MAX: Final = 128 << 20
TIMEOUTS: Final = TcpTimeouts(unsent_s_max=30.0)
WORDS: Final = PortWords("", "it speaks HTTP", "it speaks TLS, and this client plain text")


class BrokerFrames(FrameProtocol):
    """A client's connection to a broker: a `FrameConnection`."""

    def __init__(self, receiver: Receiver) -> None:
        super().__init__(receiver, TIMEOUTS, words=WORDS)
        # A broker is believed, and bounded all the same: what is no frame (HTTP, TLS) reads as a length of hundreds of
        # megabytes.
        self.frame_bytes_max = ANSWER_BYTES_MAX

    def close(self) -> None:
        """Cuts the connection at once, and drops what was not sent yet: nobody waits for the response any more."""
        # A broker that hangs takes no more bytes. Closing in order would wait for it, past the end of the event loop.
        if not self._is_closed:
            self._is_closed = True
            self._transport.abort()

    def _break_off(self, why: str) -> None:
        self._kept = b""
        self.close()


class EncryptedBrokerFrames(EncryptedFrames, BrokerFrames):
    """A client's connection to a broker with TLS."""


async def dial(host: str, port: int, receiver: Receiver, context: ssl.SSLContext | None) -> FrameConnection:
    """Opens a connection to a broker, with TLS if a context is given. Raises `OSError`; has no deadline of its own."""
    make = BrokerFrames if context is None else EncryptedBrokerFrames
    protocol = make(receiver)
    try:
        await asyncio.get_running_loop().create_connection(lambda: protocol, host, port, ssl=context)
    except BaseException:
        # Also when this task is cancelled: the transport may exist by then, and nobody would close it.
        protocol.give_up()
        raise
    return protocol


async def in_thread(call: Callable[[], T]) -> T:
    """Makes a call that would keep the event loop busy in one of the loop's threads. If the caller is cancelled, the
    call still runs to its end."""
    return await asyncio.to_thread(call)
