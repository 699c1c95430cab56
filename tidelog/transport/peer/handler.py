"""The part of a `PeerNode` that a broker supplies: it answers the other brokers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from tidelog.model.ports import Buffer
from tidelog.transport.peer.hello import Hello


class Answer(NamedTuple):
    """The answer to a request: a message, or only bytes, or neither."""

    message: msgspec.Struct | None = None
    payload: Sequence[Buffer] = ()
    """Bytes that travel untouched. They must not change once they are handed over. An answer that was received has one
    buffer, or none."""

    @property
    def body(self) -> memoryview:
        """The payload of an answer that was received, as one view."""
        assert len(self.payload) <= 1
        return memoryview(self.payload[0] if self.payload else b"")


class PeerHandler(Protocol):
    """Answers the requests of other brokers."""

    async def handle(self, caller: Hello, message: msgspec.Struct, payload: memoryview) -> Answer:
        """Answers a request. A `TidelogError` goes to the caller; anything else is our fault, and logged.

        Cancelled when the caller waits no longer or its connection is lost. The payload may be kept. A caller with
        another broker epoch than the metadata says, or without one, may ask for less: that is for the handler to judge.
        """
        ...

    def notified(self, caller: Hello, message: msgspec.Struct, payload: memoryview) -> None:
        """Takes a message that nobody waits for. Must be quick and must not raise."""
        ...
