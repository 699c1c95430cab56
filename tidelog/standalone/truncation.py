"""Truncation of a standalone log: the leader deletes the entries below a position.

Only the programs that write entries know which are needed, so the log begins at 0 until one of them truncates it. Every
voter must have all deleted entries on its disk first. So no voter ever needs what is gone, except disks that join:
these get the log's own state at its first position instead (`own_state.py`).
"""

from __future__ import annotations

import asyncio

from tidelog.broker.consensus.elected_log import ElectedLog
from tidelog.model.cluster import Voter
from tidelog.model.errors import InvalidRequest, NotController, NotEnoughReplicas, TidelogError
from tidelog.standalone.messages import AskDurable, LearnedDurably
from tidelog.standalone.servers import Servers

ASK_S_MAX = 2.0
"""Seconds that another replica may take to flush its journal."""


class Truncation:
    """Truncates the log while this replica leads it. `turn` is held while the leader appends, or changes voters."""

    def __init__(self, log: ElectedLog, servers: Servers, turn: asyncio.Lock) -> None:
        self._log = log
        self._servers = servers
        self._turn = turn

    async def truncate(self, begin: int) -> int:
        """Deletes the entries below `begin`; returns the first position left, which may be higher already.

        Raises, surely without effect: `InvalidRequest` if the log ends before `begin`, `NotEnoughReplicas` if a voter
        does not have all these entries on its disk, `NotController`, `Overloaded`. With an effect or not:
        `ControllerLost`.
        """
        log = self._log
        if not log.is_leading:
            raise NotController("this replica does not lead the log")
        replica = log.engine.node.replica
        if begin > log.delivery.position:
            raise InvalidRequest(f"the log ends at {log.delivery.position}; it cannot begin at {begin}")
        if begin <= replica.begin:
            return replica.begin
        voters = log.membership.voters
        await asyncio.gather(*(self._check_durable(voter, begin) for voter in voters.voters))
        async with self._turn:
            if log.membership.voters != voters:
                raise NotController("the voters have changed meanwhile; nothing was truncated")
            await log.truncate(begin)
        return replica.begin

    async def _check_durable(self, voter: Voter, end: int) -> None:
        """Raises `NotEnoughReplicas` unless this voter has all entries below `end` on its disk."""
        name = f"server {voter.node_id} ({voter.host}:{voter.port})"
        if voter.node_id == self._servers.me.node_id:
            learned = await self.learned_durably(end)
        else:
            try:
                answer = await self._servers.ask(voter.node_id, AskDurable(end), ASK_S_MAX)
            except (TidelogError, TimeoutError) as error:
                raise NotEnoughReplicas(
                    f"{name} does not tell what it has, and every voter must have what is truncated; nothing was"
                ) from error
            assert isinstance(answer, LearnedDurably)
            learned = answer
        if learned.end < end:
            raise NotEnoughReplicas(
                f"{name} has the log up to {learned.end} only, and every voter must have what is truncated; nothing was"
            )

    async def learned_durably(self, end: int) -> LearnedDurably:
        """Returns the end of the entries that this replica has learned; they are on its disk if that is at least `end`.
        Raises `NotController`."""
        learned = self._log.delivery.position
        if learned >= end and not await self._log.disk.flush():
            raise NotController("the disk of this replica takes nothing now")
        return LearnedDurably(learned)
