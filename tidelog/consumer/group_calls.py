"""The three requests of the consumer group protocol, sent to the group's coordinator, or to any broker, which forwards
them.

Heartbeat responses name the coordinator. A coordinator that is unreachable at its advertised address is avoided in
favour of forwarding, until another one is named.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

import msgspec
from msgspec.structs import asdict

from tidelog.model.groups import (
    CommitAnswer,
    CommitOffsets,
    FetchOffsets,
    GroupRequest,
    Heartbeat,
    HeartbeatAnswer,
    OffsetsAnswer,
)
from tidelog.transport.connections import Answer
from tidelog.transport.errors import ConnectFailed, NoAnswer, decode_answer
from tidelog.transport.offsets import JSON_HEADERS
from tidelog.transport.session import CANNOT_SERVE, NO_NODE, ClusterSession

_NOT_SENT: Final = ("group", "client_host")
"""Fields that are not in the request's body: the group is in the path, and the broker determines the client's host."""


class GroupCalls:
    """Sends the requests of one group's protocol: heartbeats, offset commits, and fetches of committed offsets."""

    def __init__(self, session: ClusterSession, group: str) -> None:
        self._session = session
        self._path = f"/groups/{quote(group, safe='')}"
        self._coordinator = NO_NODE
        self._out_of_reach = NO_NODE

    async def heartbeat(self, heartbeat: Heartbeat, patience_s: float) -> HeartbeatAnswer:
        """Sends one heartbeat, without retries; the response may take `patience_s` longer than the wait that the
        heartbeat requests."""
        timeout_s = heartbeat.wait_ms / 1000 + patience_s
        address = self._session.broker(self._coordinator)
        target = f"{self._path}/heartbeat?timeout_ms={int(timeout_s * 1000)}"
        try:
            answer = await self._session.attempt(
                "POST",
                address,
                target,
                body=_body(heartbeat),
                headers=JSON_HEADERS,
                timeout_s=timeout_s + patience_s / 2,
            )
            self._check(answer, address)
        except (ConnectFailed, NoAnswer):
            self._out_of_reach, self._coordinator = self._coordinator, NO_NODE
            raise
        heard = decode_answer(HeartbeatAnswer, answer.body)
        if heard.coordinator != self._out_of_reach:
            self._out_of_reach, self._coordinator = NO_NODE, heard.coordinator
        return heard

    def _check(self, answer: Answer, address: str) -> None:
        error = answer.error
        if isinstance(error, CANNOT_SERVE):
            self._session.avoid(address)
        if error is not None:
            raise error

    async def commit(self, request: CommitOffsets) -> CommitAnswer:
        """Commits offsets; retried until the session's request timeout, since a commit is idempotent."""
        return decode_answer(CommitAnswer, await self._call("/offsets", request))

    async def fetch(self, request: FetchOffsets) -> OffsetsAnswer:
        """Fetches committed offsets; retried until the session's request timeout."""
        return decode_answer(OffsetsAnswer, await self._call("/offsets:fetch", request))

    async def _call(self, path: str, request: GroupRequest) -> bytes:
        return await self._session.call(
            "POST", self._path + path, body=_body(request), headers=JSON_HEADERS, node_id=self._coordinator
        )


def _body(request: GroupRequest) -> bytes:
    fields: dict[str, Any] = {name: value for name, value in asdict(request).items() if name not in _NOT_SENT}
    return msgspec.json.encode(fields)
