"""A `Call`: one request of a client, from the head of its frame on."""

from __future__ import annotations

import struct
from typing import Final

from msgspec import Struct

from tidelog.broker.kafka.apis import Api
from tidelog.model.kafka_wire import INT32, NO_TAGS, Malformed, Reader
from tidelog.model.ports import Buffer

_HEAD: Final = struct.Struct(">hhi")
CLIENT_ID_CHARS_MAX: Final = 256


class Head:
    """The fixed part of a frame's head."""

    __slots__ = ("correlation_id", "key", "version")

    def __init__(self, frame: memoryview) -> None:
        """Raises `Malformed` if there is not even this."""
        if len(frame) < _HEAD.size:
            raise Malformed("a frame is shorter than the head of a request")
        self.key, self.version, self.correlation_id = _HEAD.unpack_from(frame)


class Call(Struct):
    """A request whose head was read; `reader` stands at its body."""

    api: Api
    version: int
    correlation_id: int
    client_id: str
    reader: Reader
    is_flexible: bool
    began_s: float
    """The time at which it came, by the broker's clock."""

    @property
    def frame(self) -> memoryview:
        """All of it."""
        return self.reader.frame

    def head(self) -> bytes:
        """Returns how its answer begins."""
        return INT32.pack(self.correlation_id) + NO_TAGS if self.is_flexible else INT32.pack(self.correlation_id)


def read_call(api: Api, head: Head, frame: memoryview, now_s: float) -> Call:
    """Reads the rest of a head. Raises `Malformed`."""
    reader = Reader(frame, _HEAD.size)
    is_flexible = api.is_flexible(head.version)
    client_id = reader.nullable_string(is_flexible=False) or ""  # in every version a string of the old kind
    reader.tags(is_flexible=is_flexible)
    return Call(api, head.version, head.correlation_id, client_id[:CLIENT_ID_CHARS_MAX], reader, is_flexible, now_s)


Answer = list[Buffer]
"""A frame in pieces, its head first."""
