"""Frames inside TLS: what differs from frames in plain text (`frame_protocol.py`).

Receiving is the same: the event loop decrypts into the buffers that the protocol gives, so a large frame goes into its
own buffer there, too. Sending is not: each buffer that is handed over would become records of TLS of its own, so small
ones are joined before; and all that is handed over is encrypted at once, so that no more than `TURN_BYTES` are in one
turn of the event loop. What waits meanwhile counts as queued.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tidelog.adapters.frame_protocol import FrameProtocol, Receiver, TcpTimeouts
from tidelog.model.broker_names import broker_name
from tidelog.model.ports import Buffer

RECORD_BYTES: Final = 16 << 10
"""The most that one record of TLS carries."""
TURN_BYTES: Final = 1 << 20


class TlsFrameProtocol(FrameProtocol):
    """A connection on a transport that encrypts. `own_name` is this broker's."""

    def __init__(
        self,
        receiver: Receiver,
        timeouts: TcpTimeouts,
        own_name: str,
        *,
        http_address: Callable[[], str] | None = None,
    ) -> None:
        super().__init__(receiver, timeouts, http_address=http_address)
        self._own_name, self._peer_name = own_name, ""

    @property
    def own_name(self) -> str | None:
        """See the port."""
        return self._own_name

    @property
    def peer_name(self) -> str | None:
        """See the port."""
        return self._peer_name

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Reads the other end's certificate, once; the handshake has verified it."""
        self._peer_name = broker_name(transport.get_extra_info("peercert") or {})
        super().connection_made(transport)

    def close(self) -> None:
        """See the port. What waits for its turn goes out now."""
        while self._unsent and not self._is_closed:
            self._flush()
        super().close()

    def _flush(self) -> None:
        if not self._unsent or self._is_closed:
            return
        waiting, self._unsent, self._unsent_bytes = self._unsent, [], 0
        turn, rest = _divided(waiting, TURN_BYTES)
        if rest:
            self._unsent, self._unsent_bytes = rest, sum(memoryview(buffer).nbytes for buffer in rest)
            self._loop.call_soon(self._flush)
        self._transport.writelines(joined(turn))


def _divided(buffers: list[Buffer], size: int) -> tuple[list[Buffer], list[Buffer]]:
    """The buffers up to so many bytes, and the rest; a buffer that does not fit is cut."""
    left = size
    for index, buffer in enumerate(buffers):
        length = memoryview(buffer).nbytes
        if length > left:
            view = memoryview(buffer)
            return [*buffers[:index], view[:left]], [view[left:], *buffers[index + 1 :]]
        left -= length
    return buffers, []


def joined(buffers: Sequence[Buffer]) -> Iterator[Buffer]:
    """The same bytes; buffers that are small are joined up to the size of a record, the others stay as they are."""
    small: list[Buffer] = []
    size = 0
    for buffer in buffers:
        length = memoryview(buffer).nbytes
        if size + length > RECORD_BYTES:
            if small:
                yield b"".join(small)
            small, size = [], 0
        if length >= RECORD_BYTES:
            yield buffer
        elif length:
            small.append(buffer)
            size += length
    if small:
        yield b"".join(small)
