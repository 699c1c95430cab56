"""Frames on a stream of bytes, each with its length before it.

```
length  u32, big-endian: bytes that follow
frame
```

Receiving. Bytes arrive in one buffer of `CHUNK_BYTES`, out of which small frames are copied, so that a burst of them
costs one system call. If a frame is longer than that buffer, its length is compared with the bound, and its bytes are
received into a buffer of its own, which grows as they arrive. A frame of a usual fetch fits into the first size; a
larger one is copied by 1.33 times its size at most.

Sending. The frames of one turn of the event loop are sent together, in one gathered write, without a copy.

An incomplete frame has a deadline that grows with its size. An accepted connection is not read while its peer does not
take the answers, so that it costs no more memory. The first bytes of HTTP are recognised, and answered with the address
for HTTP, since people try HTTP on unknown ports.

Frames are what brokers send each other, and what Kafka's clients send (`client_frames.py`); `PortWords` has the texts
for the two kinds of ports.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import structlog

from tidelog.model.ports import Buffer, FrameConnection, FrameReceiver

LENGTH_BYTES: Final = 4
_LENGTH: Final = struct.Struct(">I")
CHUNK_BYTES: Final = 64 << 10
FIRST_BYTES: Final = 1 << 20
GROWTH: Final = 4
FRAME_BYTES_MAX: Final = (1 << 32) - 1
UNSENT_BYTES_HIGH: Final = 1 << 20
"""Bytes of unsent answers from which on no more requests are read from the connection."""

_HTTP_STARTS: Final = frozenset(
    {b"CONN", b"DELE", b"GET ", b"HEAD", b"OPTI", b"PATC", b"POST", b"PRI ", b"PUT ", b"TRAC"}
)
_TLS_START: Final = b"\x16\x03"

Receiver = Callable[[FrameConnection], FrameReceiver]


class _Chunks(threading.local):
    """The buffer into which the system writes received bytes, one per thread."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(CHUNK_BYTES))


# All connections of a thread share it: its bytes are taken out in the same call of the event loop that has put them
# there. So a connection at rest has no buffer.
_CHUNKS: Final = _Chunks()


@dataclass(frozen=True, slots=True)
class TcpTimeouts:
    """Times in seconds, and a rate, after which a connection is given up."""

    frame_s_max: float = 10.0
    """Time for a frame to arrive, in addition to its length divided by `bytes_per_s_min`."""
    bytes_per_s_min: int = 1 << 20
    unsent_s_max: float = 15.0
    """Time for sent bytes to be acknowledged by the other machine (TCP_USER_TIMEOUT)."""
    close_s_max: float = 1.0
    """Time for a closed connection to send its queued frames."""


@dataclass(frozen=True, slots=True)
class PortWords:
    """Texts about one port, for clients that connect to the wrong port and for the operators who look for the cause."""

    port: str
    """Sentence that says for whom the port is."""
    http: str
    """Reason that is reported when a connection is closed because it speaks HTTP."""
    tls: str
    """Reason that is reported when a connection is closed because it speaks TLS, with what to do about it."""


PEER_WORDS: Final = PortWords(
    "This is the peer port of a tidelog broker, for other brokers.",
    "somebody speaks HTTP to the peer port",
    "it speaks TLS, and this port plain text: set security.inter.broker.protocol to the same on all brokers",
)


class FrameProtocol(asyncio.BufferedProtocol):
    """A connection: the `FrameConnection` of its receiver, and the asyncio protocol of its transport."""

    gathered_bytes_max = FRAME_BYTES_MAX
    """Bytes of frames that are gathered until the end of the event loop's turn."""

    def __init__(
        self,
        receiver: Receiver,
        timeouts: TcpTimeouts,
        *,
        http_address: Callable[[], str] | None = None,
        words: PortWords = PEER_WORDS,
    ) -> None:
        self.frame_bytes_max = FRAME_BYTES_MAX
        self._make_receiver = receiver
        self._timeouts = timeouts
        self._words = words
        self._http_address = http_address
        """A function that returns the address for HTTP clients, to name it to a client that speaks HTTP here. None once
        the first frame has arrived, and on a connection that this side opened."""
        self._is_accepted = http_address is not None
        self._loop = asyncio.get_running_loop()
        self._is_connected = False
        """True between `connection_made` and `connection_lost`."""
        self._is_closed = False
        self._is_held = False
        """True while no more frames are to be delivered."""
        self._remote = "?"
        # receiving
        self._kept = b""
        """Received bytes that are not delivered yet: the beginning of a small frame, or all frames while the connection
        is held."""
        self._frame: memoryview | None = None
        """Buffer of the large frame that is arriving, None if there is none. `_frame_end` bytes of it have arrived, of
        `_frame_bytes` in all."""
        self._frame_end = 0
        self._frame_bytes = 0
        self._frames = 0
        """Number of completed frames, by which the deadline of an incomplete frame recognises whether that frame is
        still arriving."""
        self._deadline: asyncio.TimerHandle | None = None
        # sending
        self._unsent: list[Buffer] = []
        self._unsent_bytes = 0
        self._closing: asyncio.TimerHandle | None = None

    # -- the port ----------------------------------------------------------------------------------------------------

    @property
    def queued_bytes(self) -> int:
        """Bytes passed to `send` that the system has not taken yet."""
        return self._unsent_bytes + (0 if self._is_closed else self._transport.get_write_buffer_size())

    @property
    def remote(self) -> str:
        """Address of the other end, for people: `host:port`."""
        return self._remote

    @property
    def own_name(self) -> str | None:
        """This broker's name in the certificate that it presented; None, as there is no TLS."""
        return None

    @property
    def peer_name(self) -> str | None:
        """The other end's name in its certificate; None, as there is no TLS."""
        return None

    @property
    def certificates(self) -> tuple[bytes, bytes]:
        """Digests of the certificates of both ends; empty, as there is no TLS."""
        return b"", b""

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Sends the buffers, one after the other, as one frame: at the end of the event loop's turn, or at once if more
        than `gathered_bytes_max` are unsent. Never blocks, never raises."""
        if self._is_closed:
            return
        size = sum(map(len, buffers))
        assert size <= FRAME_BYTES_MAX
        if not self._unsent:
            # At the end of this turn: what else is sent in it leaves in the same system call, in the order of the
            # calls.
            self._loop.call_soon(self._flush)
        self._unsent += (_LENGTH.pack(size), *buffers)
        self._unsent_bytes += LENGTH_BYTES + size
        if self._unsent_bytes > self.gathered_bytes_max:
            self._flush()

    def close(self) -> None:
        """Closes the connection once the queued frames are sent, or after `close_s_max` seconds. Idempotent."""
        if self._is_closed:
            return
        self._flush()
        self._is_closed = True
        self._transport.close()
        # `close` waits for the peer to take what was sent, and a peer that is gone never does.
        self._closing = self._loop.call_later(self._timeouts.close_s_max, self._transport.abort)

    def give_up(self) -> None:
        """Ends a connection whose opening was given up.

        If the connection was made in the same moment, uvloop does not report its end, so the receiver is notified from
        here.
        """
        self._is_closed = True
        self._loop.call_soon(self.connection_lost, None)

    def _flush(self) -> None:
        if self._unsent and not self._is_closed:
            buffers, self._unsent, self._unsent_bytes = self._unsent, [], 0
            # One gathered write. Nothing is joined here, so a batch of megabytes goes from where it lies.
            self._transport.writelines(buffers)

    # -- asyncio: the connection -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Sets the socket's options and creates the receiver."""
        self._transport = cast("asyncio.Transport", transport)
        peer_name = transport.get_extra_info("peername")
        self._remote = f"{peer_name[0]}:{peer_name[1]}" if peer_name else "?"
        self._set_up(transport.get_extra_info("socket"))
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_HIGH)
        self._receiver = self._make_receiver(self)
        self._is_connected = True

    def _set_up(self, sock: Any) -> None:
        unsent_s = max(1, round(self._timeouts.unsent_s_max))
        with contextlib.suppress(OSError):  # the peer is gone already
            # Frames leave gathered as they are: Nagle's algorithm would only hold the last one back for an
            # acknowledgement.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            with contextlib.suppress(AttributeError):  # not Linux: the system's own timeouts, then
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, unsent_s * 1000)
                # The user timeout is for bytes that are under way. On a connection at rest only probes find a machine
                # that is gone.
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, unsent_s)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, unsent_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Notifies the receiver of the end of the connection, once."""
        # `give_up` may have come before; the receiver hears of the end once.
        if not self._is_connected:
            return
        self._is_connected, self._is_closed = False, True
        self._unsent, self._unsent_bytes = [], 0
        self._drop_received()
        for timer in (self._deadline, self._closing):
            if timer is not None:
                timer.cancel()
        self._receiver.connection_lost(exc)

    def _drop_received(self) -> None:
        """Frees the buffers now: receiver and protocol reference each other, and so live until a garbage collection."""
        self._frame = None
        self._kept = b""

    def eof_received(self) -> bool:
        """Closes the connection when the peer has closed its half. Queued frames are still sent."""
        self.close()
        return False

    def pause_writing(self) -> None:
        """Stops reading from a peer that takes no answers, if the peer opened the connection."""
        # Only those who ask are held back: of two brokers that both paused until the other one reads, neither would go
        # on.
        if self._is_accepted and not self._is_closed:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Reads again from a peer that takes answers again."""
        if self._is_accepted and not self._is_closed:
            self._transport.resume_reading()

    # -- asyncio: bytes ----------------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        """Returns the buffer for the next bytes: the rest of the large frame that is arriving, or the thread's shared
        buffer."""
        return self._frame[self._frame_end :] if self._frame is not None else _CHUNKS.view

    def buffer_updated(self, nbytes: int) -> None:
        """Handles `nbytes` bytes that the system has written into the buffer of `get_buffer`."""
        if self._is_closed:
            return
        if self._frame is None:
            self._take(self._kept + bytes(_CHUNKS.view[:nbytes]))
        else:
            self._frame_end += nbytes
            # The buffer is handed over as it is, and belongs to the receiver from here on.
            if self._frame_end == self._frame_bytes:
                frame, self._frame = self._frame, None
                self._deliver(frame)
            elif self._frame_end == len(self._frame):
                self._frame = self._larger(self._frame)
        if (self._frame is not None or self._kept) and self._deadline is None and not self._is_closed:
            self._watch()

    def _take(self, data: bytes) -> None:
        """Delivers the complete frames in `data`. The rest is kept, or moved into the buffer of a large frame."""
        start, end = 0, len(data)
        while end - start >= LENGTH_BYTES and not self._is_closed and not self._is_held:
            (length,) = _LENGTH.unpack_from(data, start)
            # Before a byte of memory is taken for it: a length is only a claim.
            if length > self.frame_bytes_max:
                self._refuse_length(length, data[start : start + LENGTH_BYTES])
                return
            body = start + LENGTH_BYTES
            if body + length > end:
                # A smaller frame is completed in the chunk, together with those behind it.
                if length > CHUNK_BYTES - LENGTH_BYTES and self._may_begin(length, data[body : body + 2]):
                    self._begin_large(length, data[body:])
                    return
                break
            # A copy, since `data` is the rest of the chunk's, and receivers patch offsets in place.
            self._deliver(memoryview(bytearray(data[body : body + length])))
            start = body + length
        # A receiver may close, or hold, in the middle of a burst: nothing behind that frame is delivered.
        self._kept = b"" if self._is_closed else data[start:]

    def _may_begin(self, length: int, begun: bytes) -> bool:
        """Returns True if a large frame of `length` bytes may be received now; `begun` is its beginning. Subclasses
        return False to postpone it."""
        return True

    def _begin_large(self, length: int, begun: bytes) -> None:
        self._frame_bytes, self._frame_end = length, len(begun)
        # Who announces 64 MiB and sends nothing gets 1 MiB.
        self._frame = memoryview(bytearray(min(length, FIRST_BYTES)))
        self._frame[: self._frame_end] = begun
        self._kept = b""

    def _larger(self, full: memoryview) -> memoryview:
        # Fourfold each time, so all copies together are a third of the frame; exactly its size at last.
        frame = memoryview(bytearray(min(self._frame_bytes, GROWTH * len(full))))
        frame[: len(full)] = full
        return frame

    def _deliver(self, frame: memoryview) -> None:
        self._frames += 1
        self._http_address = None
        self._receiver.frame_received(frame)

    # -- what is not a frame -----------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Starts the timer that closes the connection if the incomplete frame does not arrive in time."""
        length = 0 if self._frame is None else self._frame_bytes
        # In seconds; a large frame gets the time that it takes on a slow line.
        patience_s = self._timeouts.frame_s_max + length / self._timeouts.bytes_per_s_min
        self._deadline = self._loop.call_later(patience_s, self._look, self._frames, self._frame is not None)

    def _look(self, frames: int, was_large: bool) -> None:
        self._deadline = None
        if self._frame is None and not self._kept:
            return
        # The same frame as when the deadline was set. Any other has come since, and gets its own time.
        if frames == self._frames and was_large == (self._frame is not None) and not self._is_held:
            self._break_off("a frame did not arrive in time")
        else:
            self._watch()

    def _refuse_length(self, length: int, first: bytes) -> None:
        # Read as a length this is 369 MB or more, so it always comes here, and never passes for a frame.
        if first.startswith(_TLS_START):
            self._break_off(self._words.tls)
            return
        if self._http_address is not None and first in _HTTP_STARTS:
            self._transport.write(_http_answer(self._words.port, self._http_address()))
            self._break_off(self._words.http)
        else:
            self._break_off(
                f"a frame of {length} bytes is announced ({first.hex()}); the bound is {self.frame_bytes_max}"
            )

    def _break_off(self, why: str) -> None:
        structlog.get_logger("tidelog.peer").warning("a peer connection is broken off", remote=self.remote, reason=why)
        self._kept = b""
        self.close()


def _http_answer(port: str, http_address: str) -> bytes:
    body = f"{port} HTTP clients go to {http_address}.\n".encode()
    return (
        b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n"
        b"Content-Length: %d\r\n\r\n%b"
    ) % (len(body), body)
