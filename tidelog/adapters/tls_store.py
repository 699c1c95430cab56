"""The contexts that are in force, and how others come in their place.

The files are read and tried in a thread (`tls_contexts.py`), on SIGHUP and a few seconds after one of them has changed.
What is good replaces all contexts at once; what is not, or belongs to another broker, is logged and counted, and the
old ones stay. Whoever makes a connection asks for the context at that moment, so connections that there are stay, too,
and a CA that was taken out of the file vouches for nobody who comes later.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from tidelog.adapters.tls_contexts import load_contexts, seconds_left
from tidelog.adapters.tls_listener import TlsListener, TlsTerms, tls_listeners
from tidelog.config.errors import ConfigError
from tidelog.config.schema import BrokerConfig

LOOK_S: Final = 2.0
HTTP_SHUTDOWN_S: Final = 30.0
"""An answer that is the last one on its connection may take so long to arrive; a dead client is found out before."""
WARN_S: Final = 14 * 24 * 3600.0
WARN_AGAIN_S: Final = 24 * 3600.0

Signature = tuple[tuple[int, int, int] | None, ...]

logger = structlog.get_logger("tidelog.tls")


class TlsStore:
    """Made before the listeners; `watch` is to run as long as they do. Raises `ConfigError`."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._seen = self._signature()
        self.contexts = load_contexts(config)
        self.reloads: Counter[str] = Counter()
        """How often the files were loaded again, by outcome."""
        self.refused: Counter[tuple[str, str]] = Counter()
        """Connections that did not come to be, by listener and cause."""
        self._is_wanted = asyncio.Event()
        self._warned_s = -WARN_AGAIN_S

    @property
    def expires_s(self) -> float:
        """The end of the certificate's time, since 1970."""
        return self.contexts.expires_s

    # -- for listeners -----------------------------------------------------------------------------------------------

    async def bind(
        self, make: Callable[[], asyncio.BaseProtocol], host: str, port: int, backlog: int
    ) -> Sequence[TlsListener]:
        """Binds an address for HTTP clients; serves nobody yet. Raises `OSError`."""
        terms = TlsTerms("http", lambda: self.contexts.http, self.note_refused, HTTP_SHUTDOWN_S)
        return await tls_listeners(make, host, port, terms, backlog=backlog)

    @property
    def answering(self) -> ssl.SSLContext:
        """For connections that peers open."""
        assert self.contexts.answering is not None
        return self.contexts.answering

    @property
    def calling(self) -> ssl.SSLContext:
        """For connections to peers."""
        assert self.contexts.calling is not None
        return self.contexts.calling

    def note_refused(self, listener: str, cause: str) -> None:
        """Counts a connection that did not come to be."""
        self.refused[listener, cause] += 1

    # -- loading again -----------------------------------------------------------------------------------------------

    def reload(self) -> None:
        """Has the files loaded again, changed or not."""
        self._is_wanted.set()

    async def watch(self) -> None:
        """Looks after the files until it is cancelled."""
        self._warn()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._is_wanted.wait()
            is_asked = self._is_wanted.is_set()
            self._is_wanted.clear()
            seen = await asyncio.to_thread(self._signature)
            if is_asked or seen != self._seen:
                self._seen = seen
                await self._load()
            self._warn()

    async def _load(self) -> None:
        try:
            found = await asyncio.to_thread(load_contexts, self._config)
            if found.own.name != self.contexts.own.name:
                raise ConfigError(
                    f"the certificate of {self._config.ssl_keystore_location} is that of "
                    f"{found.own.name or 'no broker'} now, and this is {self.contexts.own.name or 'no broker'}; "
                    "restart the broker to change its name"
                )
        except ConfigError as error:
            self.reloads["refused"] += 1
            logger.error("certificates are not taken, and the old ones stay in force", reason=error.message)
            return
        self.contexts = found
        self.reloads["done"] += 1
        self._warned_s = -WARN_AGAIN_S
        logger.info("certificates are loaded again", days_left=_days(seconds_left(found)))

    def _signature(self) -> Signature:
        return tuple(_signature_of(path) for path in self._paths())

    def _paths(self) -> tuple[str, ...]:
        locations = (self._config.ssl_keystore_location, self._config.ssl_truststore_location)
        return tuple(path for path in locations if path is not None)

    def _warn(self) -> None:
        """Says once a day that the certificate's time is nearly over."""
        now_s, left_s = asyncio.get_running_loop().time(), seconds_left(self.contexts)
        if left_s < WARN_S and now_s >= self._warned_s + WARN_AGAIN_S:
            self._warned_s = now_s
            logger.warning(
                "the certificate's time is nearly over; make a new one (`tidelog tls renew`)",
                file=self._config.ssl_keystore_location,
                days_left=_days(left_s),
            )


def _signature_of(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _days(seconds: float) -> int:
    return int(seconds // (24 * 3600))
