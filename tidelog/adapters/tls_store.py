"""The TLS contexts in force, and their replacement when certificate files change.

The files are read and tried in a thread (`tls_contexts.py`), on SIGHUP and a few seconds after one of them has changed.
Valid files replace all contexts at once; invalid ones, or those of another broker, are logged and counted, and the old
contexts stay. Each new connection uses the context of that moment, so existing connections stay open, and certificates
of a CA that was removed from the file are not accepted on new ones.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from tidelog.adapters.tls_contexts import load_contexts, seconds_left
from tidelog.adapters.tls_listener import Refusal, TlsListener, TlsTerms, tls_listeners
from tidelog.adapters.watched_files import WatchedFiles
from tidelog.config.errors import ConfigError
from tidelog.config.schema import BrokerConfig

HTTP_SHUTDOWN_S: Final = 30.0
"""Seconds that the last answer on a connection may take to arrive; a dead client is detected before."""
WARN_S: Final = 14 * 24 * 3600.0
WARN_AGAIN_S: Final = 24 * 3600.0

logger = structlog.get_logger("tidelog.tls")


class TlsStore:
    """Keeps the TLS contexts current. Created before the listeners; `watch` runs as long as they do. Raises
    `ConfigError` if the files are invalid at the start."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        # Before the files are read: a change in between is then seen, and they are read again.
        self._files = WatchedFiles([config.ssl_keystore_location, config.ssl_truststore_location])
        self.contexts = load_contexts(config)
        self.reloads: Counter[str] = Counter()
        """Number of times that the files were read again, by outcome: `done` or `refused`."""
        self.refused: Counter[tuple[str, str]] = Counter()
        """Number of connections that were refused or whose handshake failed, by listener and cause."""
        self.on_refused: list[Callable[[Refusal], None]] = []
        """Callbacks for each connection that was refused, or whose handshake failed."""
        self._warned_s = -WARN_AGAIN_S

    @property
    def expires_s(self) -> float:
        """Expiry of the certificate, in seconds since 1970."""
        return self.contexts.expires_s

    # -- for listeners -----------------------------------------------------------------------------------------------

    async def bind(
        self,
        make: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        backlog: int,
        *,
        is_ops: bool = False,
        name: str = "http",
    ) -> Sequence[TlsListener]:
        """Binds an address for the client listener `name`, or for operators, without accepting connections yet. Raises
        `OSError`."""
        terms = TlsTerms(
            "ops" if is_ops else name,
            # A call, not the context: each connection gets the one that is in force when it comes.
            lambda: self.contexts.ops if is_ops else self.contexts.http,
            self.note_refused,
            HTTP_SHUTDOWN_S,
        )
        return await tls_listeners(make, host, port, terms, backlog=backlog)

    @property
    def answering(self) -> ssl.SSLContext:
        """TLS context for connections that peers open."""
        assert self.contexts.answering is not None
        return self.contexts.answering

    @property
    def calling(self) -> ssl.SSLContext:
        """TLS context for connections to peers."""
        assert self.contexts.calling is not None
        return self.contexts.calling

    def note_refused(self, refusal: Refusal) -> None:
        """Counts a refused connection, and calls the callbacks."""
        self.refused[refusal.listener, refusal.cause] += 1
        for hear in self.on_refused:
            hear(refusal)

    # -- loading again -----------------------------------------------------------------------------------------------

    def reload(self) -> None:
        """Requests that the files are read again, changed or not."""
        self._files.look()

    async def watch(self) -> None:
        """Reads the files again whenever they change or `reload` requests it, until cancelled."""
        self._warn()
        while True:
            if await self._files.are_to_be_read():
                await self._load()
            self._warn()

    async def _load(self) -> None:
        try:
            contexts = await asyncio.to_thread(load_contexts, self._config)
            # Peers know this broker by its name: under another one, new connections and old ones would be two brokers.
            if contexts.own.name != self.contexts.own.name:
                raise ConfigError(
                    f"the certificate of {self._config.ssl_keystore_location} is that of "
                    f"{contexts.own.name or 'no broker'} now, and this is {self.contexts.own.name or 'no broker'}; "
                    "restart the broker to change its name"
                )
        except ConfigError as error:
            self.reloads["refused"] += 1
            logger.error("certificates are not taken, and the old ones stay in force", reason=error.message)
            return
        # All at once, so no connection is made with new keys and old authorities.
        self.contexts = contexts
        self.reloads["done"] += 1
        self._warned_s = -WARN_AGAIN_S
        logger.info("certificates are loaded again", days_left=_days(seconds_left(contexts)))

    def _warn(self) -> None:
        """Logs once a day that the certificate will expire soon."""
        now_s, left_s = asyncio.get_running_loop().time(), seconds_left(self.contexts)
        # Once a day by the loop's clock; the end of the certificate's time goes by the wall clock.
        if left_s < WARN_S and now_s >= self._warned_s + WARN_AGAIN_S:
            self._warned_s = now_s
            logger.warning(
                "the certificate's time is nearly over; make a new one (`tidelog tls renew`)",
                file=self._config.ssl_keystore_location,
                days_left=_days(left_s),
            )


def _days(seconds: float) -> int:
    return int(seconds // (24 * 3600))
