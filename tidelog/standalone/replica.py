"""One replica of a log by itself, at work: found or joined, elected or following, asked from outside.

    initialised     founds the log with the others, once all of them are there
    empty           asks the others for the log, follows it, and joins those who vote
    otherwise       goes on as what it was

*Joining.* A disk votes under an id that no other disk ever had. A replica without one asks the leader, who first has an
id for it noted in the log: then it is used up, whatever becomes of the rest. Whoever reads there that an id is his
writes it down, and may vote under it. When he has caught up, the leader changes the voters
(`ElectedLog.change_voters`): the new disk in the place of that node's old one. A leader takes one entry, or one change,
at a time, as Mesos' does.

The log begins at 0 until somebody has it truncated. Entries mean something to whoever wrote them, so nothing goes
unasked; and every voter must have what goes on its disk first. So no voter ever needs what is gone, but for disks that
join: those are told what the log itself had noted there (`own_state`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any

import msgspec

from tidelog.broker.consensus.elected_log import ElectedLog
from tidelog.broker.consensus.founding import Address, NamedVoter, ask_member, find_origin
from tidelog.broker.consensus.log_member import LogContext, LogMember, facts_of
from tidelog.broker.consensus.messages import DescribeQuorum, ElectionFrame, PaxosFrame, QuorumDescribed
from tidelog.broker.consensus.waiting import Past
from tidelog.broker.runtime.log_writer import LogWriter
from tidelog.broker.runtime.stats import Stats
from tidelog.controller.records import VoterAssigned
from tidelog.model.cluster import Voter
from tidelog.model.errors import InvalidRequest, NotController, NotEnoughReplicas, TidelogError, TooLarge
from tidelog.model.ports import BlockingRunner, Clock, Entropy, Network
from tidelog.replication.election_settings import ElectionSettings
from tidelog.replication.paxos.state import Prefix
from tidelog.replication.paxos.voters import Membership, VoterSet, decode_voters, encode_voters
from tidelog.standalone.directory import DirectoryRefused, ReplicaDirectory
from tidelog.standalone.entries import LogEntry, LogView, own_entry, split_entry, users_entry
from tidelog.standalone.messages import (
    STANDALONE_MESSAGES,
    Appended,
    AppendToLog,
    AskDurable,
    AskOwnState,
    JoinLog,
    JoinNoted,
    LearnedDurably,
    LogPart,
    OwnStateAt,
    ReadLog,
    Truncated,
    TruncateLog,
)
from tidelog.standalone.own_state import LogFloor, OwnState, OwnStateHistory, decode_floor
from tidelog.transport.peer import Answer, Hello, PeerNode

ENTRY_BYTES_MAX = 4_000_000
"""Replicas send no more at a time to each other."""
ENTRIES_PER_ANSWER_MAX = 1_000
"""To a reader. A leader that is busy for long with one answer loses its lease."""
BEHIND_MAX = 64
"""A replica that is further behind than this many positions is not made a voter yet."""
JOIN_S_MAX = 12.0
"""Longer than a change of voters may take."""
JOIN_PAUSE_S = 0.1
ASK_S_MAX = 2.0
"""For a flush, or the log's own state, of another replica."""
BEHIND_S = 0.02
NEW_LOG = Past(
    log="the log",
    remedy="if no other disk of the log comes back, nothing can be appended to it any more: read what is left with "
    "`tidelog log read`, and found another log with that",
)
"""A log by itself has no other data, so it has no past without its journal."""


class LogReplica:
    """Made on a running loop; `listen`, `start`, and `close` at the end. Node ids count the servers, from 1."""

    def __init__(
        self,
        node_id: int,
        directory: ReplicaDirectory,
        network: Network,
        runner: BlockingRunner,
        clock: Clock,
        entropy: Entropy,
        *,
        settings: ElectionSettings,
    ) -> None:
        self.node_id = node_id
        self.stats = Stats()
        self.has_voted_in = asyncio.Event()
        """Set once the log names this disk among its voters."""
        self.leads = asyncio.Event()
        """Set while this replica may append."""
        self.failed = asyncio.Event()
        self.failure = ""
        self._directory = directory
        self._member = LogMember(node_id, directory.store, directory.stored)
        self._entropy = entropy
        self._writer = LogWriter(runner, clock, self.stats)
        self._life = entropy.token_hex(16)
        self._peers = PeerNode(network, self._hello, STANDALONE_MESSAGES, self, clock, entropy)
        self._peers.on_peer_down.append(lambda node: None if self._log is None else self._log.peer_down(node))
        self._context = LogContext(self._peers.notify, self._writer, settings, clock, entropy)
        self._named: list[NamedVoter] = []
        self._may_found = False
        self._log: ElectedLog | None = None
        self._view: LogView
        self._history: OwnStateHistory
        self._fetching: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def log_id(self) -> str:
        """Empty until it is known."""
        return self._member.cluster_id

    def _hello(self) -> Hello:
        return Hello(self.node_id, self._life, self.log_id)

    # -- beginning ---------------------------------------------------------------------------------------------------

    async def listen(self, address: Address) -> Address:
        """Takes connections from now on; the address with the port as chosen. Raises `OSError`."""
        return await self._peers.listen(*address)

    async def start(self, servers: Sequence[Address]) -> None:
        """Takes part in the log of these servers, this one included; returns when it is known which log that is.

        A new replica waits for the others. Raises `DirectoryRefused`, `ConfigError` if this disk, or another server, is
        of another log or of other servers.
        """
        self._named = [NamedVoter(node, address) for node, address in enumerate(servers, start=1)]
        for voter in self._others():
            self._peers.know(voter.node_id, *voter.address)
        self._spawn(self._writer.run())
        member = self._member
        if member.is_new:
            await self._begin(is_initialised=facts_of(member.stored) is not None)
        elif member.stored_node_id != self.node_id:
            raise DirectoryRefused(
                f"it belongs to server {member.stored_node_id} of log {member.cluster_id}, by their order"
            )
        self._take_part()

    def _others(self) -> list[NamedVoter]:
        return [voter for voter in self._named if voter.node_id != self.node_id]

    async def _begin(self, *, is_initialised: bool) -> None:
        if not is_initialised and not self._others():
            raise DirectoryRefused("the directory is empty, and no other server is named that could know the log")
        self._may_found = is_initialised
        me, others = self._named[self.node_id - 1], [voter.address for voter in self._others()]
        named, contacts = (self._named, ()) if is_initialised else ((), others)
        incarnation, ask = self._member.incarnation, partial(ask_member, self._peers)
        origin = await find_origin(
            me, incarnation, named, contacts, ask, self._entropy, named_by="--servers", past=NEW_LOG
        )
        self._may_found = origin.is_founder
        await self._member.begin(origin, self._writer)

    def _take_part(self) -> None:
        member = self._member
        stored = member.stored.floor
        floor = LogFloor() if stored is None else decode_floor(stored[1])
        membership = _membership(member, floor)
        state = floor.state
        if floor.position == 0:
            state = OwnState(encode_voters(membership.voters) if membership.is_known else b"")
        self._history = OwnStateHistory(floor.position, state)
        delivered = 0 if state is None else floor.position
        encode = self._encode_floor
        self._log = log = ElectedLog(
            member, membership, self._context, self, self, delivered=delivered, encode_floor=encode
        )
        replica = log.engine.node.replica
        self._view = LogView(replica.floor, replica.slots)
        self._spawn(log.disk.run())
        self._enlist()
        log.start()
        self.lacks_snapshot()
        if floor.voters:
            self._go_by(membership.voters)
        self._spawn(self._join())

    def _encode_floor(self, prefix: Prefix) -> bytes:
        return msgspec.msgpack.encode(self._history.floor(prefix, self._known().delivery.position))

    def _enlist(self) -> None:
        """Votes under the id that the log has noted for this disk, if it has."""
        noted = self._history.assigned.get((self.node_id, self._member.incarnation))
        if noted is not None:
            self._known().leadership.enlist(noted)

    # -- the end -----------------------------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._ended)
        self._tasks.append(task)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._fail(f"{type(task.exception()).__name__}: {task.exception()}")

    def _fail(self, reason: str) -> None:
        self.failure = self.failure or reason
        self.failed.set()

    async def close(self) -> None:
        """Ends in order: what was answered is durable."""
        if self._log is not None:
            self._log.leadership.resign()
            self._log.close()
        await self._peers.close()
        if not self.failed.is_set():
            await self._writer.drain()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._directory.close()

    # -- as the log sees it ------------------------------------------------------------------------------------------

    def applied(self, payload: bytes, offset: int, position: int) -> None:
        noted = split_entry(payload)
        if isinstance(noted, VoterAssigned):
            self._history.note(position, noted)
            if (noted.node_id, noted.storage) == (self.node_id, self._member.incarnation):
                self._known().leadership.enlist(noted.voter_id)

    def voters_applied(self, voters: VoterSet, position: int) -> None:
        self._history.note(position, voters)
        self._go_by(voters)

    def _go_by(self, voters: VoterSet) -> None:
        self._known().set_learners([voter.node_id for voter in self._named])
        if voters.find(self.node_id, self._member.incarnation) is not None:
            self.has_voted_in.set()

    def leading(self, number: int) -> None:
        self.leads.set()

    def deposed(self) -> None:
        self.leads.clear()

    def leader_changed(self, node_id: int | None) -> None:
        """Programs find the leader by asking."""

    def halted(self) -> None:
        self._fail("the disk has failed; see what it was, then start this replica again")

    def lacks_snapshot(self) -> None:
        """The log begins later than this replica knows it: another one tells what the log had noted before."""
        is_lacking = self._known().delivery.needs_snapshot is not None
        if is_lacking and (self._fetching is None or self._fetching.done()):
            self._fetching = self._spawn(self._fetch_state())

    async def _fetch_state(self) -> None:
        log = self._known()
        while (needed := log.delivery.needs_snapshot) is not None:
            told = await self._ask_state(needed)
            while told.position > log.applied_position:  # noqa: ASYNC110 - its log may begin later than what came here
                await asyncio.sleep(BEHIND_S)
            if told.position > log.delivery.position:
                self._install(told.position, told.state)

    def _install(self, position: int, state: OwnState) -> None:
        log = self._known()
        voters = decode_voters(state.voters)
        self._history.install(position, state)
        self._member.contacts = voters
        log.install(position, voters, state.voters_position)
        log.disk.rewrite_floor(log.engine.node.replica.floor)
        log.disk.refresh(log.engine.node.replica.metadata)
        self._enlist()
        self._go_by(log.membership.voters)

    async def _ask_state(self, at_least: int) -> OwnStateAt:
        """Asks one after the other until one has it."""
        while True:
            for other in self._others():
                try:
                    answer = await self._peers.request(other.node_id, AskOwnState(), deadline_s=ASK_S_MAX)
                except (TidelogError, TimeoutError):
                    continue
                assert isinstance(answer.message, OwnStateAt)
                if answer.message.position >= at_least:
                    return answer.message
            await asyncio.sleep(JOIN_PAUSE_S * self._entropy.uniform(1, 2))

    @property
    def learned_end(self) -> int:
        """Up to where this replica knows what is chosen; 0 while it does not know its log."""
        return 0 if self._log is None else self._log.applied_position

    # -- as other replicas and programs see it -----------------------------------------------------------------------

    async def handle(self, caller: Hello, message: msgspec.Struct, payload: memoryview) -> Answer:
        """For `PeerNode`."""
        match message:
            case DescribeQuorum():
                return Answer(self._described())
            case ReadLog():
                return self._read(message)
            case AppendToLog():
                return Answer(Appended(await self.append(bytes(payload))))
            case TruncateLog():
                return Answer(Truncated(await self.truncate(message.begin)))
            case AskDurable():
                return Answer(await self._learned_durably(message.end))
            case AskOwnState():
                return Answer(self._own_state())
            case JoinLog():
                await self._admit(caller.node_id, message)
                return Answer(JoinNoted())
        raise InvalidRequest("a replica of a log by itself does not answer that")

    def notified(self, caller: Hello, message: msgspec.Struct, payload: memoryview) -> None:
        """For `PeerNode`."""
        if self._log is not None and isinstance(message, PaxosFrame):
            self._log.receive_paxos(caller.node_id, message, payload)
        elif self._log is not None and isinstance(message, ElectionFrame):
            self._log.receive_election(caller.node_id, message)

    def _known(self) -> ElectedLog:
        if self._log is None:
            raise NotController("this replica does not know its log yet")
        return self._log

    def _described(self) -> QuorumDescribed:
        """Raises `NotController` if it is neither of a log nor of those who may found one: nobody must count on it."""
        if self._log is None and self._may_found:
            return self._member.described_as_new(self._named)
        return self._known().described(self._named)

    def _read(self, asked: ReadLog) -> Answer:
        log, view = self._known(), self._view
        view.extend(log.engine.node.replica.floor)
        entries: list[LogEntry] = []
        payloads: list[bytes] = []
        total = 0
        first = max(asked.position, view.begin)
        for position in range(first, min(view.end, first + ENTRIES_PER_ANSWER_MAX)):
            value = view.slot(position).value
            payload = log.engine.payload_of(position, value) if value.digest else None
            total += len(payload or b"")
            if entries and total > asked.bytes_max:
                break
            entries.append(view.entry(position, payload))
            payloads += [] if payload is None else [payload]
        return Answer(LogPart(view.begin, view.end, tuple(entries)), payloads)

    async def append(self, payload: bytes) -> int:
        """Appends an entry; its position, when a majority has it on disk.

        Raises, surely without effect: `TooLarge`, `NotController`, `Overloaded`. With an effect or not:
        `ControllerLost`.
        """
        if len(payload) > ENTRY_BYTES_MAX:
            raise TooLarge(f"an entry of {len(payload):,} bytes is larger than {ENTRY_BYTES_MAX:,}")
        log = self._known()
        if not log.is_leading:  # whoever comes to the wrong replica need not wait for a turn there
            raise NotController("this replica does not lead the log")
        async with self._turn:
            return (await log.append(users_entry(payload), 1)).position

    # -- truncation --------------------------------------------------------------------------------------------------

    async def truncate(self, begin: int) -> int:
        """Has the log begin at `begin`, if it does not begin later; returns where it begins.

        Raises, surely without effect: `InvalidRequest` beyond what is known here, `NotEnoughReplicas` if a voter does
        not have all of it on its disk, `NotController`, `Overloaded`. With an effect or not: `ControllerLost`.
        """
        log = self._known()
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
        """Raises `NotEnoughReplicas` unless this voter has all below `end` on its disk."""
        name = f"server {voter.node_id} ({voter.host}:{voter.port})"
        if voter.node_id == self.node_id:
            learned = await self._learned_durably(end)
        else:
            try:
                answer = await self._peers.request(voter.node_id, AskDurable(end), deadline_s=ASK_S_MAX)
            except (TidelogError, TimeoutError) as error:
                raise NotEnoughReplicas(
                    f"{name} does not tell what it has, and every voter must have what is truncated; nothing was"
                ) from error
            assert isinstance(answer.message, LearnedDurably)
            learned = answer.message
        if learned.end < end:
            raise NotEnoughReplicas(
                f"{name} has the log up to {learned.end} only, and every voter must have what is truncated; nothing was"
            )

    async def _learned_durably(self, end: int) -> LearnedDurably:
        """How far this replica has the log; on its disk, if that is as far as `end`. Raises `NotController`."""
        log = self._known()
        learned = log.delivery.position
        if learned >= end and not await log.disk.flush():
            raise NotController("the disk of this replica takes nothing now")
        return LearnedDurably(learned)

    def _own_state(self) -> OwnStateAt:
        """Raises `NotController` if it is not known here."""
        begin = self._known().engine.node.replica.begin
        state = self._history.at(begin)
        if state is None or not state.voters or begin > self._known().delivery.position:
            raise NotController("this replica does not know what the log has noted")
        return OwnStateAt(begin, state)

    # -- voters ------------------------------------------------------------------------------------------------------

    async def _join(self) -> None:
        """Asks for a vote, until this disk has one."""
        log = self._known()
        while log.membership.voters.find(self.node_id, self._member.incarnation) is None:
            await self._keep_state()
            asked = JoinLog(self._member.incarnation, log.voting_id, log.applied_position)
            for voter in self._others():
                try:
                    await self._peers.request(voter.node_id, asked, deadline_s=JOIN_S_MAX)
                except (TidelogError, TimeoutError):
                    continue
                break
            await asyncio.sleep(JOIN_PAUSE_S * self._entropy.uniform(1, 2))

    async def _keep_state(self) -> None:
        """Waits until the log's own state where it begins is known here, and on the disk: a voter can tell others."""
        log = self._known()
        replica = log.engine.node.replica
        while self._history.at(replica.begin) is None or not await log.disk.flush():  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(JOIN_PAUSE_S)

    async def _admit(self, node_id: int, asked: JoinLog) -> None:
        """The next step for a replica that wants to vote."""
        log = self._known()
        if not 1 <= node_id <= len(self._named):
            raise InvalidRequest(f"server {node_id} is none of those that this log was started with")
        async with self._turn:
            voters = log.membership.voters
            if not log.is_leading:
                raise NotController("this replica does not lead the log")
            if voters.find(node_id, asked.incarnation) is not None or asked.applied + BEHIND_MAX < log.applied_position:
                return
            if asked.applied < log.engine.node.replica.begin:
                return  # a voter never needs what is truncated
            assigned = self._history.assigned
            voter_id = assigned.get((node_id, asked.incarnation), 0)
            if voter_id < voters.next_voter_id:
                next_id = max([voters.next_voter_id, *(known + 1 for known in assigned.values())])
                await log.append(own_entry(VoterAssigned(node_id, asked.incarnation, next_id)), 1)
            elif asked.voting_id == voter_id:
                host, port = self._named[node_id - 1].address
                old = next((voter.voter_id for voter in voters.voters if voter.node_id == node_id), None)
                await log.change_voters(add=Voter(voter_id, node_id, asked.incarnation, host, port), remove=old)


def _membership(member: LogMember, floor: LogFloor) -> Membership:
    """The voters where the log begins: by its floor, if that names them, or those who founded it."""
    if floor.voters:
        return Membership(decode_voters(floor.voters), floor.voters_position)
    return member.membership()
