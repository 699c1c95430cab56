"""The `Network` port on TCP and on TLS (`tidelog.adapters.frame_protocol` splits the streams into frames)."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tidelog.adapters.frame_protocol import FrameProtocol, Receiver, TcpTimeouts
from tidelog.adapters.tls_frames import TlsFrameProtocol
from tidelog.adapters.tls_listener import HANDSHAKE_S, TlsListener, TlsTerms, tls_listeners, words_of
from tidelog.adapters.tls_store import TlsStore
from tidelog.model.ports import FrameConnection, NetworkListener

BACKLOG: Final = 256
DEFAULT_TIMEOUTS: Final = TcpTimeouts()


def _default_directions() -> str:
    return "the address that its setting http.listener names"


@dataclass(eq=False, kw_only=True)
class TcpNetwork:
    """The `Network` on plain TCP. `http_address` returns the address that HTTP clients should use."""

    http_address: Callable[[], str] = _default_directions
    timeouts: TcpTimeouts = DEFAULT_TIMEOUTS

    async def connect(self, host: str, port: int, receiver: Receiver, *, timeout_s: float) -> FrameConnection:
        """Opens a connection, trying all addresses of the host within one deadline. Raises `ConnectionRefusedError` if
        all refuse, `TimeoutError`, or another `OSError`."""
        errors: list[OSError] = []
        async with asyncio.timeout(timeout_s):
            # One after the other, within one deadline: `localhost` may be ::1 first, where nobody listens.
            for address in await _resolve(host, port):
                try:
                    return await self._open(address, port, receiver)
                except OSError as error:
                    errors.append(error)
        # A refusal tells that the machine is up and the broker is not, which callers act on. With any other error that
        # is not known.
        other_errors = [error for error in errors if not isinstance(error, ConnectionRefusedError)]
        raise (other_errors or errors)[0]  # a refusal only if every address of the host refused

    async def _open(self, address: str, port: int, receiver: Receiver) -> FrameProtocol:
        return await _dial(FrameProtocol(receiver, self.timeouts), address, port)

    async def listen(self, host: str, port: int, receiver: Receiver) -> NetworkListener:
        """Listens for connections; port 0 is any free port. Raises `OSError` if the address cannot be used."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: FrameProtocol(receiver, self.timeouts, http_address=self.http_address),
            host,
            port,
            backlog=BACKLOG,
        )
        return TcpListener(server)


async def _dial(protocol: FrameProtocol, address: str, port: int, **tls: Any) -> FrameProtocol:
    try:
        await asyncio.get_running_loop().create_connection(lambda: protocol, address, port, **tls)
    except BaseException:
        protocol.give_up()
        raise
    return protocol


async def _resolve(host: str, port: int) -> list[str]:
    """Returns the IP addresses of a host without duplicates. Raises `OSError` if it has none."""
    with contextlib.suppress(ValueError):
        # No resolver, and no thread, for an address.
        return [str(ipaddress.ip_address(host))]
    try:
        infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(f"{host!r} is no name of a host") from error
    return list(dict.fromkeys(str(info[4][0]) for info in infos))


class TlsNetwork(TcpNetwork):
    """The `Network` on TLS. Both ends of each connection present certificates; this broker's are those of the
    `TlsStore`."""

    def __init__(self, store: TlsStore, *, http_address: Callable[[], str] = _default_directions) -> None:
        super().__init__(http_address=http_address)
        self._store = store

    async def _open(self, address: str, port: int, receiver: Receiver) -> FrameProtocol:
        protocol = TlsFrameProtocol(receiver, self.timeouts, self._store.contexts.own)
        try:
            return await _dial(
                protocol,
                address,
                port,
                ssl=self._store.calling,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=2 * self.timeouts.close_s_max,  # the protocol gives it up before
            )
        except ssl.SSLError as error:
            raise OSError(f"there is no TLS handshake with it: {words_of(error)}") from error
        # What a peer that expects plain text does with a TLS hello.
        except (ConnectionAbortedError, ConnectionResetError) as error:
            raise OSError("it ended the TLS handshake; does it speak TLS (security.inter.broker.protocol)?") from error

    async def listen(self, host: str, port: int, receiver: Receiver) -> NetworkListener:
        """Listens for TLS connections; port 0 is any free port. Raises `OSError` if the address cannot be used."""
        store = self._store
        # Asked for at each connection, so that new certificates, and CAs that were taken out, count at once.
        terms = TlsTerms("peer", lambda: store.answering, store.note_refused, 2 * self.timeouts.close_s_max)
        bound = await tls_listeners(
            lambda: TlsFrameProtocol(receiver, self.timeouts, self._store.contexts.own, http_address=self.http_address),
            host,
            port,
            terms,
            backlog=BACKLOG,
        )
        for listener in bound:
            await listener.start_serving()
        return TcpListener(*bound)


class TcpListener:
    """A `NetworkListener` on TCP or TLS sockets."""

    def __init__(self, *servers: asyncio.Server | TlsListener) -> None:
        self._servers = servers
        address, number, *_ = servers[0].sockets[0].getsockname()
        self._address: tuple[str, int] = (address, number)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the listener; if port 0 was requested, the port that the system chose."""
        return self._address

    async def close(self) -> None:
        """Stops accepting connections; those accepted stay open. Idempotent."""
        for server in self._servers:
            server.close()
