"""A replica of a standalone log: it founds or joins the log, leads or follows, and answers clients.

    an initialised directory    founds the log with the others, once all of them are running
    an empty directory          asks the others for the log, follows it, and joins the voters
    any other                   continues as what it was

A new disk becomes a voter by `joining.py`, the log's own state is kept by `state_keeper.py`, and entries
that are no longer needed are deleted by `truncation.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from tidelog.broker.consensus.elected_log import ElectedLog
from tidelog.broker.consensus.founding import Address, ask_member, find_origin
from tidelog.broker.consensus.log_member import LogContext, LogMember, metainfo_of
from tidelog.broker.consensus.messages import DescribeQuorum, ElectionFrame, PaxosFrame, QuorumDescribed
from tidelog.broker.consensus.waiting import Past
from tidelog.broker.runtime.log_writer import LogWriter
from tidelog.broker.runtime.stats import Stats
from tidelog.controller.records import VoterAssigned
from tidelog.model.errors import ForeignSender, ImplausibleNumber, InvalidRequest, NotController, TooLarge
from tidelog.model.levels import SPOKEN_LEVELS
from tidelog.model.ports import BlockingRunner, Clock, Entropy, Network
from tidelog.replication.election_settings import ElectionSettings
from tidelog.replication.paxos.voters import VoterSet
from tidelog.standalone import messages
from tidelog.standalone.directory import DirectoryRefused, ReplicaDirectory
from tidelog.standalone.entries import LogEntry, LogView, split_entry, users_entry
from tidelog.standalone.joining import Joining
from tidelog.standalone.servers import Servers
from tidelog.standalone.state_keeper import StateKeeper
from tidelog.standalone.truncation import Truncation
from tidelog.transport.peer import Answer, ClusterSecret, Hello, PeerNode
from tidelog.transport.peer.statistics import NUMBER, SENDER

ENTRY_BYTES_MAX = 4_000_000
"""Maximum size of an entry in bytes: replicas send no larger messages to each other."""
ENTRIES_PER_ANSWER_MAX = 1_000
"""Maximum number of entries in an answer to a reader. A leader that is busy for long with one answer loses its
lease."""
NEW_LOG = Past(
    log="the log",
    remedy="if no other disk of the log comes back, nothing can be appended to it any more: read what is left with "
    "`tidelog log read`, and found another log with that",
)
"""The messages for a replica whose disk is new. It has no earlier cluster (`Past`): the directory of a standalone log
holds nothing but the journal, so nothing shows whether one was lost."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a replica that are made as soon as it knows which log it belongs to."""

    log: ElectedLog
    state: StateKeeper
    view: LogView
    joining: Joining
    truncation: Truncation


class LogReplica:
    """A replica, made on a running event loop; call `listen`, `start`, and `close` at the end. Node ids number the
    servers from 1."""

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
        secret: ClusterSecret | None = None,
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
        self._peers = PeerNode(network, self._hello, messages.STANDALONE_MESSAGES, self, clock, entropy, secret=secret)
        self._peers.on_peer_down.append(self._peer_down)
        self._context = LogContext(self._peers.notify, self._writer, settings, clock, entropy)
        self._servers: Servers
        self._may_found = False
        self._parts: Parts | None = None
        self._fetching: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def log_id(self) -> str:
        """The log's id; empty until it is known."""
        return self._member.cluster_id

    def _hello(self) -> Hello:
        return Hello(self.node_id, self._life, self.log_id, levels=SPOKEN_LEVELS)

    # -- beginning ---------------------------------------------------------------------------------------------------

    async def listen(self, address: Address) -> Address:
        """Accepts connections from now on; returns the address with the actual port. Raises `OSError`."""
        return await self._peers.listen(*address)

    async def start(self, servers: Sequence[Address]) -> None:
        """Takes part in the log of these servers, this one included; returns when it is known which log that is.

        A new replica waits for the others. Raises `DirectoryRefused`, or `ConfigError` if this disk, or another server,
        belongs to another log or to other servers.
        """
        self._servers = Servers(self.node_id, servers, self._peers, self._entropy)
        self._spawn(self._writer.run())
        member = self._member
        if member.is_new:
            await self._begin(is_initialised=metainfo_of(member.stored) is not None)
        elif member.stored_node_id != self.node_id:
            raise DirectoryRefused(
                f"it belongs to server {member.stored_node_id} of log {member.cluster_id}, by their order"
            )
        self._take_part()

    async def _begin(self, *, is_initialised: bool) -> None:
        servers = self._servers
        if not is_initialised and not servers.others:
            raise DirectoryRefused("the directory is empty, and no other server is named that could know the log")
        self._may_found = is_initialised
        others = [voter.address for voter in servers.others]
        named, contacts = (servers.named, ()) if is_initialised else ((), others)
        incarnation, ask = self._member.incarnation, partial(ask_member, self._peers)
        origin = await find_origin(
            servers.me, incarnation, named, contacts, ask, self._entropy, named_by="--servers", past=NEW_LOG
        )
        self._may_found = origin.is_founder
        await self._member.begin(origin, self._writer)

    def _take_part(self) -> None:
        member, servers = self._member, self._servers
        state = StateKeeper(member, servers)
        begin, encode = state.delivered, state.encode_floor
        log = ElectedLog(member, state.membership, self._context, self, self, delivered=begin, encode_floor=encode)
        replica = log.engine.node.replica
        view = LogView(replica.floor, replica.slots)
        joining = Joining(log, state, servers, member.incarnation, self._turn)
        self._parts = Parts(log, state, view, joining, Truncation(log, servers, self._turn))
        self._spawn(log.disk.run())
        state.attach(log)
        log.start()
        self.lacks_snapshot()
        if state.knows_voters:
            self._go_by(state.membership.voters)
        self._spawn(joining.join())

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
        """Stops in order: every acknowledged entry is durable."""
        if self._parts is not None:
            self._parts.log.leadership.resign()
            self._parts.log.close()
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
            self._require_parts().state.note(position, noted)

    def voters_applied(self, voters: VoterSet, position: int) -> None:
        self._require_parts().state.note(position, voters)
        self._go_by(voters)

    def _go_by(self, voters: VoterSet) -> None:
        self._require_parts().log.set_learners([voter.node_id for voter in self._servers.named])
        if voters.find(self.node_id, self._member.incarnation) is not None:
            self.has_voted_in.set()

    def leading(self, number: int) -> None:
        self.leads.set()

    def deposed(self) -> None:
        self.leads.clear()

    def leader_changed(self, node_id: int | None) -> None:
        """Does nothing: clients find the leader by asking."""

    def halted(self) -> None:
        self._fail("the disk has failed; see what it was, then start this replica again")

    def lacks_snapshot(self) -> None:
        """Fetches the log's voters and voter ids at its first position from another replica, since this one does not
        know them."""
        if self._require_parts().state.is_lacking and (self._fetching is None or self._fetching.done()):
            self._fetching = self._spawn(self._fetch_state())

    async def _fetch_state(self) -> None:
        await self._require_parts().state.fetch()
        self._go_by(self._require_parts().log.membership.voters)

    @property
    def learned_end(self) -> int:
        """The position up to which this replica knows the chosen values; 0 while it does not know its log."""
        return 0 if self._parts is None else self._parts.log.applied_position

    # -- as other replicas and programs see it -----------------------------------------------------------------------

    async def handle(self, caller: Hello, message: msgspec.Struct, payload: memoryview) -> Answer:
        """Answers a request of another replica or of a client, for `PeerNode`. Raises `InvalidRequest` for other
        messages."""
        match message:
            case DescribeQuorum():
                return Answer(self._described())
            case messages.ReadLog():
                return self._read(message)
            case messages.AppendToLog():
                return Answer(messages.Appended(await self.append(bytes(payload))))
            case messages.TruncateLog():
                return Answer(messages.Truncated(await self.truncate(message.begin)))
            case messages.AskDurable():
                return Answer(await self._require_parts().truncation.learned_durably(message.end))
            case messages.AskOwnState():
                return Answer(self._require_parts().state.at_begin())
            case messages.JoinLog():
                await self._require_parts().joining.admit(caller.node_id, message)
                return Answer(messages.JoinNoted())
        raise InvalidRequest("a replica of a log by itself does not answer that")

    def notified(self, caller: Hello, message: msgspec.Struct, payload: memoryview) -> None:
        """Takes a Paxos or election message of another replica, for `PeerNode`. A message that no correct replica could
        have sent is counted and ignored."""
        if self._parts is None:
            return
        try:
            if isinstance(message, PaxosFrame):
                self._parts.log.receive_paxos(caller.node_id, message, payload)
            elif isinstance(message, ElectionFrame):
                self._parts.log.receive_election(caller.node_id, message)
        except ForeignSender:
            self._peers.statistics.refused[SENDER] += 1
        except ImplausibleNumber:
            self._peers.statistics.refused[NUMBER] += 1

    def _peer_down(self, node_id: int) -> None:
        if self._parts is not None:
            self._parts.log.peer_down(node_id)

    def _require_parts(self) -> Parts:
        if self._parts is None:
            raise NotController("this replica does not know its log yet")
        return self._parts

    def _described(self) -> QuorumDescribed:
        """Returns what this replica knows of the log's voters and leader. Raises `NotController` if it neither belongs
        to a log nor may found one."""
        if self._parts is None and self._may_found:
            return self._member.described_as_new(self._servers.named)
        return self._require_parts().log.described(self._servers.named)

    def _read(self, request: messages.ReadLog) -> Answer:
        log, view = self._require_parts().log, self._require_parts().view
        view.extend(log.engine.node.replica.floor)
        entries: list[LogEntry] = []
        payloads: list[bytes] = []
        total = 0
        first = max(request.position, view.begin)
        for position in range(first, min(view.end, first + ENTRIES_PER_ANSWER_MAX)):
            value = view.slot(position).value
            payload = log.engine.payload_of(position, value) if value.digest else None
            total += len(payload or b"")
            if entries and total > request.bytes_max:
                break
            entries.append(view.entry(position, payload))
            payloads += [] if payload is None else [payload]
        return Answer(messages.LogPart(view.begin, view.end, tuple(entries)), payloads)

    async def append(self, payload: bytes) -> int:
        """Appends an entry; returns its position when a majority has it on disk.

        Raises, surely without effect: `TooLarge`, `NotController`, `Overloaded`. With an effect or not:
        `ControllerLost`.
        """
        if len(payload) > ENTRY_BYTES_MAX:
            raise TooLarge(f"an entry of {len(payload):,} bytes is larger than {ENTRY_BYTES_MAX:,}")
        log = self._require_parts().log
        if not log.is_leading:  # whoever comes to the wrong replica need not wait for a turn there
            raise NotController("this replica does not lead the log")
        async with self._turn:
            return (await log.append(users_entry(payload), 1)).position

    async def truncate(self, begin: int) -> int:
        """Deletes the entries below `begin`; returns the first position left. Raises, surely without effect:
        `InvalidRequest` if the log ends before `begin`, `NotEnoughReplicas` if a voter does not have all these entries
        on its disk, `NotController`, `Overloaded`. With an effect or not: `ControllerLost`."""
        return await self._require_parts().truncation.truncate(begin)
