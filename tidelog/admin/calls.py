"""How the admin client asks: paths of REST v3 below the cluster, at any broker."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from tidelog.transport.errors import decode_answer
from tidelog.transport.offsets import JSON_HEADERS
from tidelog.transport.session import ClusterSession

T = TypeVar("T")


class Listed(msgspec.Struct, Generic[T], frozen=True):
    """A list of resources."""

    data: list[T]


def decoded(kind: type[T], body: bytes) -> T:
    """An answer's body as `kind`."""
    return decode_answer(msgspec.json.Decoder(kind), body)


class Calls:
    """The calls of one session: reads, which are repeated until they succeed or time runs out, and changes."""

    def __init__(self, session: ClusterSession) -> None:
        self._session = session

    async def _read(self, kind: type[T], path: str, *, address: str | None = None, timeout_s: float | None = None) -> T:
        return decoded(kind, await self._session.call("GET", self._target(path), address=address, timeout_s=timeout_s))

    async def _change(
        self,
        method: str,
        path: str,
        asked: object = None,
        *,
        safe: bool,
        tells_timeout: bool = False,
        address: str | None = None,
    ) -> bytes:
        """`safe`: making the change twice is the same as making it once; `tells_timeout` as `ClusterSession.call`."""
        body, headers = (None, None) if asked is None else (msgspec.json.encode(asked), JSON_HEADERS)
        target = self._target(path)
        return await self._session.call(
            method, target, body=body, headers=headers, safe=safe, tells_timeout=tells_timeout, address=address
        )

    def _target(self, path: str) -> str:
        return f"/v3/clusters/{self._session.cluster_id}{path}"
