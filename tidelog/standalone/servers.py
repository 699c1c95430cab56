"""The servers of a standalone log: their addresses in order, and requests from one to the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from tidelog.broker.consensus.founding import Address, NamedVoter
from tidelog.model.errors import TidelogError
from tidelog.model.ports import Entropy
from tidelog.transport.peer import PeerNode

PAUSE_S = 0.1


class Servers:
    """The servers as one of them knows them. Node ids number them from 1."""

    def __init__(self, node_id: int, addresses: Sequence[Address], peers: PeerNode, entropy: Entropy) -> None:
        self.named = [NamedVoter(node, address) for node, address in enumerate(addresses, start=1)]
        self.me = self.named[node_id - 1]
        self.others = [voter for voter in self.named if voter.node_id != node_id]
        self._peers = peers
        self._entropy = entropy
        for voter in self.others:
            peers.know(voter.node_id, *voter.address)

    async def ask(self, node_id: int, message: msgspec.Struct, deadline_s: float) -> msgspec.Struct | None:
        """Sends a request to another server and returns its answer. Raises `TidelogError`, `TimeoutError`."""
        return (await self._peers.request(node_id, message, deadline_s=deadline_s)).message

    async def ask_any(
        self, message: msgspec.Struct, deadline_s: float, accepts: Callable[[msgspec.Struct | None], bool]
    ) -> msgspec.Struct | None:
        """Sends a request to the other servers one after the other; returns the first answer for which `accepts` is
        True, or None."""
        for server in self.others:
            try:
                answer = await self.ask(server.node_id, message, deadline_s)
            except (TidelogError, TimeoutError):
                continue
            if accepts(answer):
                return answer
        return None

    async def pause(self) -> None:
        """Waits some 0.1 to 0.2 seconds before the servers are asked again."""
        await asyncio.sleep(PAUSE_S * self._entropy.uniform(1, 2))
