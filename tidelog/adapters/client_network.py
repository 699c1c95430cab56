"""Listeners for clients that send frames, in plain text or with TLS."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from tidelog.adapters.client_frames import ClientFrames, ClientReceiverMaker, EncryptedClientFrames
from tidelog.adapters.frame_protocol import PortWords, TcpTimeouts
from tidelog.adapters.tls_listener import TlsListener
from tidelog.adapters.tls_store import TlsStore

BACKLOG: Final = 1_024
TIMEOUTS: Final = TcpTimeouts(unsent_s_max=30.0)


class ClientNetwork:
    """Binds listeners for clients. With a `store` of certificates all connections use TLS."""

    def __init__(self, words: PortWords, http_address: Callable[[], str], store: TlsStore | None = None) -> None:
        self._words = words
        self._http_address = http_address
        self._store = store

    async def bind(
        self, host: str, port: int, receiver: ClientReceiverMaker, *, frame_bytes_max: int
    ) -> BoundClientListener:
        """Binds an address without accepting connections yet. Raises `OSError`."""
        # TLS is a property of the listener, so no connection can choose plain text.
        kind = ClientFrames if self._store is None else EncryptedClientFrames
        make = partial(kind, receiver, TIMEOUTS, self._words, self._http_address, frame_bytes_max)
        if self._store is not None:
            return BoundClientListener(await self._store.bind(make, host, port, BACKLOG, name="kafka"))
        loop = asyncio.get_running_loop()
        # Bound at once, so that an address in use fails the start; serving begins when the broker can answer.
        return BoundClientListener([await loop.create_server(make, host, port, backlog=BACKLOG, start_serving=False)])


class BoundClientListener:
    """A bound address, at which connections are accepted from `start_serving` on."""

    def __init__(self, bound: Sequence[asyncio.Server | TlsListener]) -> None:
        self._bound = bound
        host, port, *_ = bound[0].sockets[0].getsockname()
        self.address: tuple[str, int] = (host, port)

    async def start_serving(self) -> None:
        """Accepts connections from now on."""
        for listener in self._bound:
            await listener.start_serving()

    def close(self) -> None:
        """Stops accepting connections; those accepted stay open. Idempotent."""
        for listener in self._bound:
            listener.close()
