"""Joining a standalone log: how a new disk becomes a voter.

A disk votes under an id that no other disk ever had. A replica without one asks the leader, who first appends a note
with an id for it to the log: from then on the id is taken, whatever happens next. The replica that reads in the log
that an id is its own stores it, and may vote under it. When it has caught up, the leader changes the voters
(`ElectedLog.change_voters`): the new disk replaces that node's old one. A leader takes one entry, or one change, at a
time, as Mesos' does.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from tidelog.broker.consensus.elected_log import ElectedLog
from tidelog.controller.records import VoterAssigned
from tidelog.model.cluster import Voter
from tidelog.model.errors import InvalidRequest, NotController
from tidelog.standalone.entries import own_entry
from tidelog.standalone.messages import JoinLog, JoinNoted
from tidelog.standalone.servers import Servers
from tidelog.standalone.state_keeper import StateKeeper

BEHIND_MAX = 64
"""Positions that a replica may be behind when it is made a voter."""
JOIN_S_MAX = 12.0
"""Seconds that a replica waits for the answer to `JoinLog`: longer than a change of voters takes."""


@dataclass(eq=False)
class Joining:
    """Requests a vote for this disk, and lets others join while this replica leads."""

    _log: ElectedLog
    _state: StateKeeper
    _servers: Servers
    _incarnation: str
    _turn: asyncio.Lock

    async def join(self) -> None:
        """Requests a vote from the leader, again and again, until this disk is a voter."""
        log = self._log
        while log.membership.voters.find(self._servers.me.node_id, self._incarnation) is None:
            if await self._state.flush():
                request = JoinLog(self._incarnation, log.voting_id, log.applied_position)
                await self._servers.ask_any(request, JOIN_S_MAX, lambda answer: isinstance(answer, JoinNoted))
            await self._servers.pause()

    async def admit(self, node_id: int, request: JoinLog) -> None:
        """Takes the next step for a replica that wants to vote: notes an id for it, or makes it a voter. Raises
        `InvalidRequest`, `NotController`."""
        if not 1 <= node_id <= len(self._servers.named):
            raise InvalidRequest(f"server {node_id} is none of those that this log was started with")
        async with self._turn:
            if not self._log.is_leading:
                raise NotController("this replica does not lead the log")
            if self._is_ready(node_id, request):
                await self._assign_or_add(node_id, request)

    def _is_ready(self, node_id: int, request: JoinLog) -> bool:
        """Returns True if the replica is no voter yet, has caught up, and lacks no truncated entries, as every voter
        must."""
        log = self._log
        has_vote = log.membership.voters.find(node_id, request.incarnation) is not None
        is_behind = (
            request.applied + BEHIND_MAX < log.applied_position or request.applied < log.engine.node.replica.begin
        )
        return not has_vote and not is_behind

    async def _assign_or_add(self, node_id: int, request: JoinLog) -> None:
        voters = self._log.membership.voters
        assigned = self._state.history.assigned
        voter_id = assigned.get((node_id, request.incarnation), 0)
        if voter_id < voters.next_voter_id:
            next_id = max([voters.next_voter_id, *(assigned_id + 1 for assigned_id in assigned.values())])
            await self._log.append(own_entry(VoterAssigned(node_id, request.incarnation, next_id)), 1)
        elif request.voting_id == voter_id:
            host, port = self._servers.named[node_id - 1].address
            old = next((voter.voter_id for voter in voters.voters if voter.node_id == node_id), None)
            await self._log.change_voters(add=Voter(voter_id, node_id, request.incarnation, host, port), remove=old)
