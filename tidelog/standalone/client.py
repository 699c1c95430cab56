"""A client of a standalone log: it sends requests to the replicas, and is none itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

import msgspec

from tidelog.broker.consensus.founding import Address
from tidelog.broker.consensus.messages import DescribeQuorum, QuorumDescribed
from tidelog.model.errors import ControllerLost, InvalidRequest, NotController, Overloaded, TidelogError
from tidelog.model.levels import SPOKEN_LEVELS
from tidelog.model.ports import Clock, Entropy, Network
from tidelog.standalone import messages
from tidelog.standalone.entries import LogEntry
from tidelog.transport.peer import (
    Answer,
    CallingEnd,
    ClusterSecret,
    Hello,
    PeerLost,
    PeerNode,
    PeerRefused,
    PeerUnreachable,
)

ASK_S_MAX = 2.0
READ_S_MAX = 10.0
READ_BYTES = 4 << 20
PAUSE_S = 0.05
NOBODY = 0
"""The node id of clients; servers have ids from 1 on."""


class LearnedEntry(NamedTuple):
    """An entry of the log, with its payload if any of the servers has it."""

    entry: LogEntry
    payload: bytes | None


class LogClient:
    """A client of a standalone log, made on a running event loop; call `close` at the end."""

    def __init__(
        self,
        servers: Sequence[Address],
        network: Network,
        clock: Clock,
        entropy: Entropy,
        secret: ClusterSecret | None = None,
    ) -> None:
        hello = Hello(NOBODY, entropy.token_hex(16), levels=SPOKEN_LEVELS)
        self._peers = PeerNode(
            network, lambda: hello, messages.STANDALONE_MESSAGES, self, clock, entropy, secret=secret
        )
        self.refusal = ""
        """Reason why a server last refused this client; empty if none has."""
        self._servers = list(servers)
        self._leader = 0
        """Counter that selects the server to try as the leader."""
        self._end: CallingEnd | None = None

    async def close(self) -> None:
        """Closes the client's connections."""
        if self._end is not None:
            self._end.close()
        await self._peers.close()

    async def handle(self, caller: Hello, message: msgspec.Struct, payload: memoryview) -> Answer:
        """Raises `InvalidRequest`: a client answers no requests."""
        raise InvalidRequest("a program answers no requests")

    def notified(self, caller: Hello, message: msgspec.Struct, payload: memoryview) -> None:
        """Ignores the message: servers send a client no notifications."""

    async def describe(self) -> list[QuorumDescribed | None]:
        """Returns what each server knows of the log's voters and leader; None for one that does not answer, or does not
        know."""
        return list(await asyncio.gather(*map(self._describe, self._servers)))

    async def _describe(self, address: Address) -> QuorumDescribed | None:
        try:
            answer = await self._peers.request_at(*address, DescribeQuorum(), deadline_s=ASK_S_MAX)
        except (TidelogError, TimeoutError) as error:
            self._note(error)
            return None
        assert isinstance(answer.message, QuorumDescribed)
        return answer.message

    async def append(self, payload: bytes, *, deadline_s: float) -> int:
        """Appends an entry at the leader and returns its position. Tries one server after the other, for `deadline_s`
        seconds.

        Raises `NotController` if no server takes it in time: it is surely not in the log; `ControllerLost` if it may
        be.
        """
        answer = await self._ask_leader(messages.AppendToLog(), (payload,), deadline_s, "the entry is in the log")
        assert isinstance(answer, messages.Appended)
        return answer.position

    async def truncate(self, begin: int, *, deadline_s: float) -> int:
        """Deletes the entries below position `begin`, and returns the first position left, which may be higher already.

        Raises `NotController` if no server does it in time (surely no effect), `ControllerLost` if it may be done;
        also, surely without effect, `InvalidRequest` if the log ends before `begin`, and `NotEnoughReplicas` if a voter
        may not have all these entries on its disk.
        """
        answer = await self._ask_leader(messages.TruncateLog(begin), (), deadline_s, "the log is truncated")
        assert isinstance(answer, messages.Truncated)
        return answer.begin

    async def _ask_leader(
        self, message: msgspec.Struct, payloads: Sequence[bytes], deadline_s: float, effect: str
    ) -> msgspec.Struct:
        """Returns the leader's answer; tries one server after the other. `effect` describes success in error
        messages."""
        until_s = asyncio.get_running_loop().time() + deadline_s
        refusals = 0
        while (remaining_s := until_s - asyncio.get_running_loop().time()) > 0:
            try:
                end = await self._connected(remaining_s)
                answer = await end.request(message, payloads, remaining_s)
            except (NotController, PeerUnreachable, Overloaded) as error:
                self._note(error)
                self._turn_away()
                refusals += 1
                if refusals % len(self._servers) == 0:
                    await asyncio.sleep(PAUSE_S)
                continue
            except (PeerLost, TimeoutError) as error:
                self._turn_away()
                raise ControllerLost(f"whether {effect} is unknown: {error}") from error
            assert answer.message is not None
            return answer.message
        refused = f" (a server refuses this program: {self.refusal})" if self.refusal else ""
        raise NotController(f"no server leads the log; a majority of them must run{refused}")

    async def _connected(self, deadline_s: float) -> CallingEnd:
        """Returns the connection to the server that is believed to lead, opening it if there is none."""
        if self._end is None:
            host, port = self._servers[self._leader % len(self._servers)]
            self._end = await self._peers.connect(host, port, deadline_s=min(deadline_s, ASK_S_MAX))
        return self._end

    def _note(self, error: Exception) -> None:
        if isinstance(error, PeerRefused):
            self.refusal = error.message

    def _turn_away(self) -> None:
        """Closes the connection to the server that was taken for the leader, so that the next server is tried."""
        if self._end is not None:
            self._end.close()
        self._end = None
        self._leader += 1

    async def extents(self) -> dict[Address, messages.LogPart]:
        """Returns the first and the end position of each server's log, for the servers that answer."""
        parts = await asyncio.gather(*(self._part(server, 1 << 62) for server in self._servers))
        return {server: part[0] for server, part in zip(self._servers, parts, strict=True) if part is not None}

    async def read(self, servers: Sequence[Address], begin: int, end: int) -> AsyncIterator[LearnedEntry]:
        """Yields the entries from `begin` to before `end`, from the first of these servers that has each; ends early
        where none has the next."""
        position = begin
        while position < end:
            entries = await self._next(servers, position)
            if not entries:
                return
            for learned in entries:
                if learned.entry.position < end:
                    yield learned
            position = entries[-1].entry.position + 1

    async def _next(self, servers: Sequence[Address], position: int) -> list[LearnedEntry]:
        """Returns the entries from `position` on, from the first server that has their payloads; else the one entry
        there without its payload."""
        damaged: list[LearnedEntry] = []
        for server in servers:
            part = await self._part(server, position)
            entries = [] if part is None else _entries(*part)
            if entries and entries[0].entry.position == position:
                whole = next((i for i, learned in enumerate(entries) if learned.payload is None), len(entries))
                if whole:
                    return entries[:whole]
                damaged = entries[:1]
        return damaged

    async def _part(self, server: Address, position: int) -> tuple[messages.LogPart, memoryview] | None:
        try:
            request = messages.ReadLog(position, READ_BYTES)
            answer = await self._peers.request_at(*server, request, deadline_s=READ_S_MAX)
        except (TidelogError, TimeoutError) as error:
            self._note(error)
            return None
        assert isinstance(answer.message, messages.LogPart)
        return answer.message, answer.body


def _entries(part: messages.LogPart, body: memoryview) -> list[LearnedEntry]:
    learned: list[LearnedEntry] = []
    at = 0
    for entry in part.entries:
        size = max(entry.payload_bytes, 0)
        payload = None if entry.payload_bytes < 0 else bytes(body[at : at + size])
        learned.append(LearnedEntry(entry, payload))
        at += size
    return learned
