"""A `Call`: one request of a Kafka client, whose header has been read."""

from __future__ import annotations

import struct
from typing import Final

from msgspec import Struct

from tidelog.broker.kafka.apis import Api
from tidelog.model.kafka_wire import INT32, NO_TAGS, Malformed, Reader
from tidelog.model.ports import Buffer

_HEAD: Final = struct.Struct(">hhi")
HEAD_BYTES: Final = _HEAD.size
"""Size of key, version and correlation id, with which each request begins."""
CORRELATION_ID_AT: Final = 0
"""Position of the correlation id in an answer."""
CLIENT_ID_CHARS_MAX: Final = 256


class Head:
    """The fixed fields of a request header: API key, version and correlation id."""

    __slots__ = ("correlation_id", "key", "version")

    def __init__(self, frame: memoryview) -> None:
        """Reads the fields from a frame. Raises `Malformed` if the frame is too short."""
        if len(frame) < HEAD_BYTES:
            raise Malformed("a frame is shorter than the head of a request")
        self.key, self.version, self.correlation_id = _HEAD.unpack_from(frame)


class Call(Struct):
    """A request whose header has been read; `reader` is positioned at its body."""

    api: Api
    version: int
    correlation_id: int
    client_id: str
    reader: Reader
    is_flexible: bool
    began_s: float
    """Time when the request arrived, in seconds of the broker's monotonic clock."""

    @property
    def frame(self) -> memoryview:
        """The whole frame of the request."""
        return self.reader.frame

    def head(self) -> bytes:
        """Returns the encoded header of the answer."""
        return INT32.pack(self.correlation_id) + NO_TAGS if self.is_flexible else INT32.pack(self.correlation_id)


def read_call(api: Api, head: Head, frame: memoryview, now_s: float) -> Call:
    """Reads the variable part of a request header and returns the `Call`. Raises `Malformed`."""
    reader = Reader(frame, HEAD_BYTES)
    is_flexible = head.version >= api.flexible_from
    client_id = reader.nullable_string(is_flexible=False) or ""  # in every version a string of the old kind
    reader.tags(is_flexible=is_flexible)
    return Call(api, head.version, head.correlation_id, client_id[:CLIENT_ID_CHARS_MAX], reader, is_flexible, now_s)


Answer = list[Buffer]
"""An encoded answer in pieces, header first."""
