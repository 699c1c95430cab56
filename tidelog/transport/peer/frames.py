"""The layout of a frame between brokers. On the connection, a length precedes each frame.

```
offset  size  field
0          1  version      of this layout; a frame of another version ends the connection
1          1  kind         see `Kind`
2          2  (zero)
4          4  header size
8          8  correlation  identifies a request on its connection; 0 for other frames
16         4  timeout      of a request, in milliseconds
20         4  CRC32C       of the 20 bytes above and the header
24            header       one message: msgpack, a map with the name of its type (`msgspec`, tagged)
              payload      all remaining bytes, untouched
```

All numbers are big-endian. The checksum does not cover the payload: record batches, values of the metadata log and
chunks of snapshots have a checksum of their own, computed where they were made.
"""

from __future__ import annotations

import enum
import functools
import operator
import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from crc32c import crc32c

from tidelog.model.levels import LEVEL_MAX, NO_ADDITIONS, Additions
from tidelog.model.ports import Buffer
from tidelog.transport.peer.errors import Fault
from tidelog.transport.peer.hello import HELLO_ADDITIONS, Hello
from tidelog.transport.peer.proof import Challenge

T = TypeVar("T")

VERSION: Final = 1
_PREFIX: Final = struct.Struct("!BBHIQI")
_CRC: Final = struct.Struct("!I")
PREFIX_BYTES: Final = _PREFIX.size + _CRC.size
TIMEOUT_MS_MAX: Final = 2**32 - 1


class Kind(enum.IntEnum):
    """The purpose of a frame."""

    HELLO = 1
    """The first frame in both directions, unless there is a cluster secret. Sent again whenever the broker's identity
    changes. With a cluster secret, the payload of the first hello is the proof."""
    REFUSAL = 2
    """The last frame before an end closes the connection: a `Fault` with the reason."""
    REQUEST = 3
    ANSWER = 4
    """The response to a request; without a message if its header is empty."""
    ERROR = 5
    """The error response to a request: a `Fault`."""
    NOTIFY = 6
    """A message without a response."""
    CANCEL = 7
    """Cancels a request: its caller has stopped waiting."""
    PING = 8
    """Requests an empty response, which the other end sends at once whatever its load."""
    CHALLENGE = 9
    """The frame before the hello, if there is a cluster secret: a `Challenge`."""


PING_LEVEL: Final = 2
"""The first feature level with pings. A broker of a lower level closes a connection on which a ping arrives."""


class BadFrame(Exception):
    """The bytes are no valid frame; the message says why."""


class OtherVersion(BadFrame):
    """A frame of another version of the protocol."""


class Frame(NamedTuple):
    """A decoded frame. `header` and `payload` are views of its bytes."""

    kind: Kind
    correlation: int
    timeout_ms: int
    header: memoryview
    payload: memoryview


def pack(
    kind: Kind, header: bytes = b"", payload: Sequence[Buffer] = (), *, correlation: int = 0, timeout_ms: int = 0
) -> list[Buffer]:
    """Returns the buffers of an encoded frame: fixed fields and header in one buffer, then the payload uncopied."""
    prefix = _PREFIX.pack(VERSION, kind, 0, len(header), correlation, timeout_ms)
    crc = crc32c(header, crc32c(prefix))
    return [b"".join((prefix, _CRC.pack(crc), header)), *payload]


def frame_bytes(header: bytes, payload: Sequence[Buffer]) -> int:
    """Returns the size in bytes that a frame will have."""
    return PREFIX_BYTES + len(header) + sum(memoryview(buffer).nbytes for buffer in payload)


def unpack(frame: memoryview) -> Frame:
    """Decodes a frame. Raises `BadFrame`, or `OtherVersion`."""
    if len(frame) and frame[0] != VERSION:
        raise OtherVersion(f"a frame of version {frame[0]} of the peer protocol came; this broker speaks {VERSION}")
    if len(frame) < PREFIX_BYTES:
        raise BadFrame(f"a frame of {len(frame)} bytes is too short")
    _, kind, zero, header_bytes, correlation, timeout_ms = _PREFIX.unpack_from(frame)
    end = PREFIX_BYTES + header_bytes
    if end > len(frame):
        raise BadFrame(f"a header of {header_bytes} bytes does not fit into a frame of {len(frame)}")
    header = frame[PREFIX_BYTES:end]
    (crc,) = _CRC.unpack_from(frame, _PREFIX.size)
    if crc32c(header, crc32c(frame[: _PREFIX.size])) != crc:
        raise BadFrame("the checksum of a frame is wrong")
    if zero or kind not in _KINDS:
        raise BadFrame(f"frames of kind {kind} are not known")
    return Frame(_KINDS[kind], correlation, timeout_ms, header, frame[end:])


_KINDS: Final = {int(kind): kind for kind in Kind}


class MessageCodec:
    """Encodes and decodes messages as headers of frames. All brokers of a cluster use the same message types, each with
    its own tag."""

    def __init__(self, message_types: Sequence[type[msgspec.Struct]], additions: Additions = NO_ADDITIONS) -> None:
        """`additions` lists the feature level that introduced each message and field.

        Raises `TypeError` if a type has no tag, or two have the same tag.
        """
        assert message_types
        for message_type in message_types:
            if message_type.__struct_config__.tag is None:
                raise TypeError(f"{message_type.__name__} has no tag; declare it with `tag=True`")
        union: Any = functools.reduce(operator.or_, message_types)
        self._messages: msgspec.msgpack.Decoder[msgspec.Struct] = msgspec.msgpack.Decoder(union)
        self._hellos = msgspec.msgpack.Decoder(Hello)
        self._faults = msgspec.msgpack.Decoder(Fault)
        self._challenges = msgspec.msgpack.Decoder(Challenge)
        self._additions = additions
        self._encode = msgspec.msgpack.Encoder().encode

    def encode(self, message: msgspec.Struct, level: int = LEVEL_MAX) -> bytes:
        """Returns the encoding of a message or a `Fault` at a feature level. Raises `UnsupportedLevel`."""
        return self._encode(self._additions.at(message, level))

    def encode_hello(self, hello: Hello) -> bytes:
        """Returns the encoding of a hello, at the highest feature level of this broker."""
        return self._encode(HELLO_ADDITIONS.at(hello, hello.levels.highest))

    def message(self, header: memoryview) -> msgspec.Struct:
        """Decodes a message. Raises `BadFrame` for an unknown type."""
        return _decode(self._messages, header)

    def hello(self, header: memoryview) -> Hello:
        """Decodes a hello. Raises `BadFrame`."""
        return _decode(self._hellos, header)

    def challenge(self, header: memoryview) -> Challenge:
        """Decodes a challenge. Raises `BadFrame`."""
        return _decode(self._challenges, header)

    def fault(self, header: memoryview) -> Fault:
        """Decodes a fault. Raises `BadFrame`."""
        return _decode(self._faults, header)


def _decode(decoder: msgspec.msgpack.Decoder[T], header: memoryview) -> T:
    try:
        return decoder.decode(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:  # msgspec lets the last two through
        raise BadFrame(f"a header cannot be understood: {error}") from error
