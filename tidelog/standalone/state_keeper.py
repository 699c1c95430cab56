"""The state of a standalone log itself (its voters and their ids), as one replica keeps it: updated as entries are
delivered, fetched from another replica if it is missing.

A replica that is behind the others' floor asks one after the other for the state at theirs (`own_state.py`), and
delivers entries from there on.
"""

from __future__ import annotations

import asyncio

import msgspec

from tidelog.broker.consensus.elected_log import ElectedLog
from tidelog.broker.consensus.log_member import LogMember
from tidelog.controller.records import VoterAssigned
from tidelog.model.errors import NotController
from tidelog.replication.paxos.state import Prefix
from tidelog.replication.paxos.voters import Membership, VoterSet, decode_voters, encode_voters
from tidelog.standalone.messages import AskOwnState, OwnStateAt
from tidelog.standalone.own_state import LogFloor, OwnState, OwnStateHistory, decode_floor
from tidelog.standalone.servers import Servers

ASK_S_MAX = 2.0
BEHIND_S = 0.02


class StateKeeper:
    """Keeps the log's own state (its voters and voter ids) on one replica. `attach` passes it the log, which cannot be
    made before the membership."""

    def __init__(self, member: LogMember, servers: Servers) -> None:
        self._member = member
        self._servers = servers
        floor = LogFloor() if member.stored.floor is None else decode_floor(member.stored.floor[1])
        self.knows_voters = bool(floor.voters)
        """True if the floor in the journal names the voters."""
        self.membership = member.membership()
        """The voters in force where the log begins: those that its floor names, or the founders."""
        if floor.voters:
            self.membership = Membership(decode_voters(floor.voters), floor.voters_position)
        state = floor.state
        if floor.position == 0:
            state = OwnState(encode_voters(self.membership.voters) if self.membership.is_known else b"")
        self.delivered = 0 if state is None else floor.position
        """The position from which on the log delivers its entries."""
        self.history = OwnStateHistory(floor.position, state)
        self._log: ElectedLog

    def attach(self, log: ElectedLog) -> None:
        self._log = log
        self._enlist()

    def encode_floor(self, prefix: Prefix) -> bytes:
        """Returns the encoded floor to store for `prefix`."""
        return msgspec.msgpack.encode(self.history.floor(prefix, self._log.delivery.position))

    def note(self, position: int, entry: VoterSet | VoterAssigned) -> None:
        """Adds the next of the log's own entries: new voters, or a voter id that a disk got."""
        self.history.note(position, entry)
        if isinstance(entry, VoterAssigned):
            self._enlist()

    def _enlist(self) -> None:
        """Makes this replica vote under the id that the log has noted for this disk, if there is one."""
        noted = self.history.assigned.get((self._servers.me.node_id, self._member.incarnation))
        if noted is not None:
            self._log.leadership.enlist(noted)

    @property
    def is_lacking(self) -> bool:
        """True if this replica does not know the log's voters and voter ids at the position where its log begins."""
        return self._log.delivery.needs_snapshot is not None

    async def fetch(self) -> None:
        """Fetches the log's voters and voter ids at its first position from other replicas, until this one has them."""
        log = self._log
        while (needed := log.delivery.needs_snapshot) is not None:
            answer = await self._ask(needed)
            while answer.position > log.applied_position:  # noqa: ASYNC110 - its log may begin later than what came here
                await asyncio.sleep(BEHIND_S)
            if answer.position > log.delivery.position:
                self._install(answer.position, answer.state)

    async def _ask(self, at_least: int) -> OwnStateAt:
        def accepts(answer: msgspec.Struct | None) -> bool:
            return isinstance(answer, OwnStateAt) and answer.position >= at_least

        while (answer := await self._servers.ask_any(AskOwnState(), ASK_S_MAX, accepts)) is None:
            await self._servers.pause()
        assert isinstance(answer, OwnStateAt)
        return answer

    def _install(self, position: int, state: OwnState) -> None:
        log = self._log
        voters = decode_voters(state.voters)
        self.history.install(position, state)
        self._member.contacts = voters
        log.install(position, voters, state.voters_position)
        log.disk.rewrite_floor(log.engine.node.replica.floor)
        log.disk.refresh(log.engine.node.replica.metadata)
        self._enlist()

    def at_begin(self) -> OwnStateAt:
        """Returns the log's voters and voter ids at the first position of this replica's log. Raises `NotController` if
        this replica does not know them."""
        begin = self._log.engine.node.replica.begin
        state = self.history.at(begin)
        if state is None or not state.voters or begin > self._log.delivery.position:
            raise NotController("this replica does not know what the log has noted")
        return OwnStateAt(begin, state)

    async def flush(self) -> bool:
        """Flushes the journal; returns True if the log's voters and voter ids at its first position are known here, and
        durable, as a voter needs them."""
        return self.history.at(self._log.engine.node.replica.begin) is not None and await self._log.disk.flush()
