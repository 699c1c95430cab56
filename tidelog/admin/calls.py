"""The admin client's requests: paths of REST v3 below the cluster, at any broker."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from tidelog.transport.errors import decode_answer
from tidelog.transport.offsets import JSON_HEADERS
from tidelog.transport.session import ClusterSession

T = TypeVar("T")


class Listed(msgspec.Struct, Generic[T], frozen=True):
    """A list of resources, as REST v3 returns it."""

    data: list[T]


class Calls:
    """The requests of one session: reads, which are retried until the timeout, and changes."""

    def __init__(self, session: ClusterSession) -> None:
        self._session = session

    async def _read(self, kind: type[T], path: str, *, address: str | None = None, timeout_s: float | None = None) -> T:
        body = await self._session.call("GET", self._target(path), address=address, timeout_s=timeout_s)
        return decode_answer(kind, body)

    async def _change(
        self,
        method: str,
        path: str,
        document: object = None,
        *,
        safe: bool,
        tells_timeout: bool = False,
        address: str | None = None,
    ) -> bytes:
        """Sends a change. `safe`: the change is idempotent, so it is also retried after an unknown outcome;
        `tells_timeout`: the broker gets a `timeout_ms` in which to respond."""
        body, headers = (None, None) if document is None else (msgspec.json.encode(document), JSON_HEADERS)
        target = self._target(path)
        return await self._session.call(
            method, target, body=body, headers=headers, safe=safe, tells_timeout=tells_timeout, address=address
        )

    def _target(self, path: str) -> str:
        return f"/v3/clusters/{self._session.cluster_id}{path}"
