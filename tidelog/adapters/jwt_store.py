"""The JWT keys in force, and their replacement when the key file changes.

The file is read in a thread, on SIGHUP and a few seconds after it has changed. Valid content replaces all keys at once;
invalid content is logged and counted, and the old keys stay.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import structlog

from tidelog.adapters.watched_files import WatchedFiles
from tidelog.config.errors import ConfigError
from tidelog.config.schema import BrokerConfig
from tidelog.model.jwt import JwtKeys

SETTING = "sasl.oauthbearer.jwks.endpoint.url"

logger = structlog.get_logger("tidelog.jwt")


class JwtStore:
    """Keeps the keys of a file current. Created before the listeners; `watch` runs as long as they do. Raises
    `ConfigError` if the file is invalid at the start."""

    def __init__(self, config: BrokerConfig) -> None:
        self._path, self._algorithms = config.jwt_keys_file, config.jwt_algorithms
        # Before the file is read: a change in between is then seen as one, and read again.
        self._files = WatchedFiles([self._path])
        self.keys: JwtKeys = self._read()
        """Keys in force. The object is replaced when the keys change."""
        self.reloads: Counter[str] = Counter()
        """Number of times that the file was read again, by outcome: `done` or `refused`."""

    def reload(self) -> None:
        """Requests that the file is read again, changed or not."""
        self._files.look()

    async def watch(self) -> None:
        """Reads the file again whenever it changes or `reload` requests it, until cancelled."""
        while True:
            if await self._files.are_to_be_read():
                await self._load()

    async def _load(self) -> None:
        try:
            # One assignment: a request sees either all old keys or all new ones.
            self.keys = await asyncio.to_thread(self._read)
        # Half of a file, or a bad one, must not log everybody out. But a key that was taken out stays in force with the
        # others, so this is an error in the broker's log.
        except ConfigError as error:
            self.reloads["refused"] += 1
            logger.error("keys of tokens are not taken, and the old ones stay in force", reason=error.message)
            return
        self.reloads["done"] += 1
        logger.info("keys of tokens are read again")

    def _read(self) -> JwtKeys:
        try:
            from tidelog.adapters.jwt_keys import load_keys  # noqa: PLC0415 -- imports extras
        except ImportError:
            raise ConfigError(
                "http.authentication: jwt needs the library PyJWT: pip install 'tidelog[security]'"
            ) from None
        try:
            return load_keys(self._path, self._algorithms)
        except ConfigError as error:
            raise ConfigError(f"{SETTING}: {error.message}") from None
