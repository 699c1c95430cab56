"""`PeerHandler`: the request handler that a broker passes to its `PeerNode`, which connects the brokers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from tidelog.model.ports import Buffer
from tidelog.transport.peer.hello import Hello


class Answer(NamedTuple):
    """The response to a request between brokers: a message, a payload, both, or neither."""

    message: msgspec.Struct | None = None
    payload: Sequence[Buffer] = ()
    """Payload bytes, sent uncopied, so they must not change afterwards. A received response has at most one buffer."""

    @property
    def body(self) -> memoryview:
        """Returns the payload of a received response as one view."""
        assert len(self.payload) <= 1
        return memoryview(self.payload[0] if self.payload else b"")


class PeerHandler(Protocol):
    """Handles the requests of other brokers."""

    async def handle(self, caller: Hello, message: msgspec.Struct, payload: memoryview) -> Answer:
        """Handles a request. A `TidelogError` is sent to the caller; any other exception is a bug, and logged.

        Cancelled when the caller stops waiting or its connection is lost. `payload` may be kept. A caller whose broker
        epoch is missing or differs from the metadata may have fewer rights: the handler decides.
        """

    def notified(self, caller: Hello, message: msgspec.Struct, payload: memoryview) -> None:
        """Handles a message without a response. Must be quick and must not raise."""
