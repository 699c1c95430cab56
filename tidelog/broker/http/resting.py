"""Connections at rest: idle connections that are closed for new ones when places are short.

A connection that is silent for long enough since its last request, or since it was opened, may be closed for a new one.
So a crowd of idle clients keeps nobody out, and a client that works is not cut off.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from itertools import islice
from typing import Final, Protocol

from tidelog.broker.face.admission import ConnectionCount
from tidelog.broker.http.limits import Limits

LOOKED_AT_MAX: Final = 64
"""Maximum number of connections examined in one search for an idle one, longest silence first."""


class Silent(Protocol):
    """A connection that may be closed for a new one while it is silent."""

    address: str
    has_requested: bool
    is_probe: bool

    @property
    def is_busy(self) -> bool:
        """True while a request is being served or waits to be served."""

    def give_way(self) -> None:
        """Closes the connection, and frees its place at once."""


class Resting:
    """The connections of a listener, longest silence first."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.refused = ConnectionCount(limits.refused_max)
        """The number of connections that were refused and are still open for a moment, so that their clients can read
        the refusal. They are not counted in `connections_max`."""
        self._silent_since: OrderedDict[Silent, float] = OrderedDict()
        self._waiter: asyncio.Future[None] | None = None
        self.is_draining = False
        """True once the listener stops, so that each request is the last one on its connection."""

    @property
    def is_empty(self) -> bool:
        """True if no connection is open."""
        return not self._silent_since

    def heard(self, connection: Silent, now_s: float) -> None:
        """Records that a connection was opened, or received something, at `now_s`."""
        self._silent_since[connection] = now_s
        self._silent_since.move_to_end(connection)

    def heard_again(self, connection: Silent, now_s: float) -> None:
        """Records that a connection's request was answered at `now_s`, unless the connection was closed meanwhile."""
        if connection in self._silent_since:
            self.heard(connection, now_s)

    def forget(self, connection: Silent) -> bool:
        """Removes a connection that is lost or closed; returns False if it was removed before."""
        was_open = self._silent_since.pop(connection, None) is not None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        return was_open

    async def connection_closed(self) -> None:
        """Waits until a connection is lost or closed. Only one caller may wait at a time."""
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def close_one(self, now_s: float, *, probe: bool, address: str | None = None) -> None:
        """Closes one connection that has been silent for long enough, if there is one. `probe` selects the connections
        of probes (health checks) or the others; with `address`, only connections from there are closed.
        """
        silent = (item for item in self._silent_since.items() if address in (None, item[0].address))
        for connection, since_s in [*islice(silent, LOOKED_AT_MAX)]:
            rest_s = self._limits.rested_s if connection.has_requested else self._limits.fresh_s
            if connection.is_busy:
                self.heard(connection, now_s)  # it waits for an answer; the next look is at others
            elif connection.is_probe is probe and now_s - since_s >= rest_s:
                connection.give_way()
                return
