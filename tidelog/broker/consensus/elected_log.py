"""A member of a log that elects its own leader; the leader appends entries.

The metadata log of a cluster is such a log, and so is a standalone log (`tidelog.standalone`). Entries are bytes to it.
Every member runs the same parts. The engine (`replication.paxos`) replicates the log with the other members' engines;
the leadership decides which voter's engine should lead, and who votes; the delivery passes chosen entries to the state
machine. A leader appends; all others, voters and learners alike, follow.

    append -> Append -> Proposed, WriteRequest... -> accepted by a quorum -> Applied -> delivered -> `append` returns
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from tidelog.broker.consensus.appending import Appends
from tidelog.broker.consensus.delivery import Delivery
from tidelog.broker.consensus.disk import ReplicaDisk
from tidelog.broker.consensus.engine import Engine, LogEffect
from tidelog.broker.consensus.founding import NamedVoter
from tidelog.broker.consensus.leadership import Leadership
from tidelog.broker.consensus.listener import LeaderListener, LogListener
from tidelog.broker.consensus.log_member import LogContext, LogMember
from tidelog.broker.consensus.messages import ElectionFrame, PaxosFrame, QuorumDescribed
from tidelog.broker.consensus.plausible import Maxima, check_election, check_paxos
from tidelog.broker.consensus.routes import Routes
from tidelog.broker.consensus.stored import stored_log
from tidelog.model.cluster import Voter
from tidelog.model.errors import NotController
from tidelog.model.ports import Buffer
from tidelog.replication.election_events import Advanced, Listeners, PeerDown, Promised
from tidelog.replication.paxos.apply import Verdict
from tidelog.replication.paxos.events import (
    Append,
    Applied,
    Elect,
    Elected,
    Found,
    Halted,
    Jumped,
    Lost,
    Refused,
    Repaired,
    Started,
    StatusChanged,
    Truncate,
    VotersFound,
)
from tidelog.replication.paxos.messages import LearnRequest, PromiseRequest, WriteRequest
from tidelog.replication.paxos.node import PaxosNode
from tidelog.replication.paxos.numbers import NODE_MAX
from tidelog.replication.paxos.state import Kind, Prefix, Status
from tidelog.replication.paxos.voters import (
    InvalidVoters,
    Membership,
    VoterSet,
    decode_voters,
    encode_voters,
    learner_id,
)

WINDOW = 64


class ElectedLog:
    """A broker's member of a log that elects its own leader. `start` has to be called first, with the task of `disk`
    running. Not thread-safe: for the event loop only."""

    def __init__(
        self,
        member: LogMember,
        membership: Membership,
        context: LogContext,
        listener: LogListener,
        leader: LeaderListener,
        *,
        delivered: int = 0,
        encode_floor: Callable[[Prefix], bytes] = msgspec.msgpack.encode,
    ) -> None:
        """`membership` names the voters at the log's beginning; `delivered` is the position up to which the state
        machine has the log already, from its snapshot or from what `encode_floor` keeps beside the floor."""
        self.node_id = member.node_id
        self.routes = Routes(context.notify)
        self.disk = ReplicaDisk(
            member.store, context.log_writer, member.encode_metainfo, floor=encode_floor, level=context.level
        )
        self._member = member
        self._listener = listener
        me = membership.voter_of(member.node_id, member.incarnation)
        if me is not None:
            member.voter_id = me.voter_id
        node = PaxosNode(
            # A disk without a vote goes by an id that no voter can have, so its answers count in no quorum.
            member.voter_id or learner_id(member.node_id),
            membership.quorum(),
            stored_log(member.stored, member.metadata),
            window=WINDOW,
            voters_position=membership.position,
        )
        self.engine = Engine(node, self.disk, self.routes.post, self, context.entropy)
        self.delivery = Delivery(delivered, self.engine.payload_of, self._deliver, lambda: node.replica.begin)
        self.leadership = Leadership(member, self.engine, membership, self.routes, self.delivery, context, leader)
        self._campaigner, self._voter_changer = self.leadership.campaigner, self.leadership.voter_changer
        self._appends = Appends(self.engine)
        self._learners: tuple[int, ...] = ()
        self._is_muted = False
        floor = node.replica.floor.position
        # The journal begins behind what the state machine has: only a snapshot can close the gap.
        if floor > delivered:
            membership.on_jumped(floor)
            self.delivery.jumped(floor)
        if member.contacts is not None:
            self.routes.set_voters(member.contacts)

    @property
    def membership(self) -> Membership:
        """The voters in force, as far as this member knows them."""
        return self._voter_changer.membership

    @property
    def unreadable(self) -> int | None:
        """The position of an entry that blocks the log because a majority, this member included, has its payload
        damaged; None if there is none."""
        node, blocking = self.engine.node, self.delivery.blocking
        # Fewer than a majority prove nothing: one that has not answered may have the entry whole.
        if blocking is not None and node.quorum.is_met({node.node} | node.lacking(blocking.position)):
            return blocking.position
        return min(node.unsettled, default=None)

    @property
    def is_leading(self) -> bool:
        """True while this broker leads the log and may append."""
        return self.leadership.number != 0

    @property
    def has_lease(self) -> bool:
        """True if this broker leads and no other can, as far as clocks can be trusted."""
        return self.is_leading and self._campaigner.has_lease

    @property
    def alone_s(self) -> float:
        """Seconds since which surely no broker that led earlier has had a lease; 0.0 if that is not known."""
        return self._campaigner.alone_s if self.is_leading else 0.0

    @property
    def applied_position(self) -> int:
        """The position up to which this member has applied chosen values; it may still lack some of their payloads."""
        return self.engine.node.replica.applied.position

    @property
    def status(self) -> Status:
        """Whether this broker's disk may vote, is founding the log, or neither."""
        return self.engine.node.replica.metadata.status

    @property
    def voting_id(self) -> int:
        """The id under which this disk votes, or would if a voter set named it; 0 if it may not vote."""
        me = self.engine.node.node
        # Ids beyond `NODE_MAX` are learners'.
        return me if me <= NODE_MAX and self.status is Status.VOTING else 0

    @property
    def belongs(self) -> bool:
        """True if this broker belongs to its cluster already, False while it still takes part in founding it."""
        return self.status is Status.VOTING or self.engine.node.node > NODE_MAX

    def open_entries(self) -> Iterator[tuple[bytes, int]]:
        """Yields payload and first offset of the entries that this member has accepted and that may be chosen, but are
        not known to be."""
        replica = self.engine.node.replica
        for position in range(replica.applied.position, replica.end):
            slot = replica.slots.get(position)
            if slot is not None and slot.value.kind is Kind.APPEND and not slot.faulty:
                payload = self.engine.payload_of(position, slot.value)
                if payload is not None:
                    yield payload, slot.value.base_offset

    def described(self, named: Sequence[NamedVoter]) -> QuorumDescribed:
        """Returns a description of this member and its log, for a broker that starts."""
        membership = self.membership
        return QuorumDescribed(
            self.node_id,
            self._member.incarnation,
            self._member.cluster_id,
            self.voting_id,
            self.engine.node.replica.metadata.founders,
            encode_voters(membership.voters) if self.belongs else b"",
            membership.position,
            tuple(map(str, named)),
            lacks=self.unreadable,
        )

    def offer(self, voter_id: int, position: int) -> None:
        """Sends a voter the learned values from `position` on, as if it had requested them. It cannot request them from
        servers that it does not know, and the value at `position` may be the one that names these servers."""
        request = LearnRequest(position, position + 1)
        self.engine.receive(PaxosFrame(voter_id, self.engine.node.node, request), memoryview(b""))

    def install(self, position: int, voters: VoterSet, voters_position: int) -> None:
        """Continues at `position` after a snapshot of everything below it was installed; the snapshot names these
        voters."""
        # Voters come first: with what follows the snapshot this member may campaign, and must ask those in force then.
        self._voter_changer.on_snapshot(voters, voters_position, position)
        self.delivery.installed(position)
        self.leadership.on_read()

    def mute(self) -> None:
        """Prevents this member from voting until `unmute`: it learns, but promises and accepts nothing, and does not
        campaign. Called before `start`."""
        self._is_muted = True

    def start(self) -> None:
        """Starts the engine, and continues founding the log if that has not ended."""
        self.engine.step(Started())
        # Said at each start until the founding is over, so a crash in the midst of it costs nothing.
        if self._member.may_found:
            self.engine.step(Found(self._member.cluster_id))
        self._begin_campaigning()

    def unmute(self) -> None:
        """Lets this member vote, once its disk is known not to be an old copy."""
        self._is_muted = False
        self._begin_campaigning()

    def _begin_campaigning(self) -> None:
        if self.belongs and not self._is_muted:
            self._campaigner.begin()

    def close(self) -> None:
        """Cancels all timers, and fails the waiting appends with an unknown outcome; writes that were begun may still
        end."""
        self.engine.close()
        self.leadership.close()
        self._appends.close()

    # -- from the network --------------------------------------------------------------------------------------------

    def receive_paxos(self, node_id: int, frame: PaxosFrame, payload: memoryview) -> None:
        """Handles a message of a peer's engine. Raises `ForeignSender`, `ImplausibleNumber`: the message had no effect
        then."""
        # All checks come before anything is noted: a refused message must leave no trace, not even in the routes.
        self.routes.check(frame.sender, node_id)
        check_paxos(frame, self._maxima)
        self.routes.heard(frame.sender, node_id)
        # An old copy of the disk does not know what it has promised since; until that is ruled out it must not answer.
        if self._is_muted and isinstance(frame.message, PromiseRequest | WriteRequest):
            return  # as lost: it comes again
        if isinstance(frame.message, PromiseRequest) and frame.to == self.engine.node.node:
            if not self._campaigner.may_promise(frame.sender):
                return  # a lease binds this voter: the request counts as lost, and comes again
            # The election must not answer heartbeats of an older number once this is promised: that would grant a lease
            # to a leader that has been overtaken.
            self._campaigner.step(Promised(frame.message.number))
        self.engine.receive(frame, payload)

    def receive_election(self, node_id: int, frame: ElectionFrame) -> None:
        """Handles a message of a peer's election core. Raises `ForeignSender`, `ImplausibleNumber`: the message had no
        effect then."""
        self.routes.check(frame.sender, node_id)
        check_election(frame, self._maxima)
        self.routes.heard(frame.sender, node_id)
        self._campaigner.receive(frame)

    @property
    def _maxima(self) -> Maxima:
        """The largest ballot number, position and offset that this member knows, to check received numbers against."""
        replica = self.engine.node.replica
        number = max(replica.highest, replica.metadata.issued, self._campaigner.election.number)
        return Maxima(number, replica.end, replica.applied.next_offset)

    def peer_down(self, node_id: int) -> None:
        """Passes to the election core that a broker's process has ended."""
        # The broker may have had an id for each of its disks, and the election goes by the one that leads.
        for engine_id in self.routes.ids_on(node_id):
            self._campaigner.step(PeerDown(engine_id))

    def set_learners(self, node_ids: Sequence[int]) -> None:
        """Sets the registered brokers: those without a vote get this member's heartbeats while it leads."""
        voters = [voter.node_id for voter in self.membership.voters.voters]
        self._learners = tuple(node for node in node_ids if node not in voters and node != self.node_id)
        self._campaigner.step(Listeners(tuple(self.routes.id_of(node) for node in self._learners)))

    # -- leading -----------------------------------------------------------------------------------------------------

    async def append(self, payload: bytes, count: int) -> Applied:
        """Appends an entry that takes `count` offsets; returns when it is chosen and applied here.

        Raises `NotController` or `Overloaded` if nothing was appended, `ControllerLost` if the outcome is unknown.
        """
        return await self._propose(Append(count, self.engine.payloads.hold(payload)))

    async def truncate(self, begin: int) -> None:
        """Truncates the log's head: it begins at `begin` then, which the snapshots of a majority must cover. Raises
        `NotController` or `Overloaded` if nothing was done, `ControllerLost` if the outcome is unknown."""
        await self._propose(Truncate(begin))

    async def _propose(self, event: Append | Truncate) -> Applied:
        # While voters change nothing may be in flight: VOTERS are the last value of their term.
        if not self.is_leading or self._voter_changer.is_changing:
            raise NotController("this broker does not lead the log now")
        return await self._appends.propose(event)

    async def change_voters(self, *, add: Voter | None = None, remove: int | None = None) -> None:
        """Adds one voter, or removes one by its id. Nothing may be appended meanwhile. Raises `NotController` for a
        change that has not begun, `ControllerLost` for one that may have."""
        # Every value of the term has to be applied before majorities of other voters count.
        if not self.is_leading or self._appends or not self.leadership.is_drained:
            raise NotController("this broker cannot change the voters now; try again")
        try:
            voters = self.membership.voters.with_change(add=add, remove=remove)
        except InvalidVoters as error:
            raise NotController(f"the voters cannot be changed now: {error}") from error
        await self._voter_changer.change(voters, self.leadership.number)

    # -- what the engine says ----------------------------------------------------------------------------------------

    def on_effect(self, effect: LogEffect) -> None:
        """Handles an effect of the engine (`EngineListener`)."""
        match effect:
            case Applied():
                self._on_applied(effect)
            case Repaired(position):
                self._voter_changer.on_repaired(position)
                self.delivery.advance()
                self.leadership.on_read()
            case Elected(number):
                self.leadership.on_elected(number)
            case Lost(number) | Refused(Elect(number)):
                self.leadership.on_lost(number)
            case VotersFound():
                self._voter_changer.on_found(effect)
            case Jumped(floor):
                self.membership.on_jumped(floor.position)
                self.delivery.jumped(floor.position)
                self._listener.lacks_snapshot()
            case StatusChanged():
                self._begin_campaigning()
            case Halted():
                self._listener.halted()
            case _:
                pass  # `_propose` has the engine's answers already, and an entry counts when it is applied

    def _on_applied(self, applied: Applied) -> None:
        self._campaigner.step(Advanced(applied.position + 1))
        # Learners do not accept, so they would hear of it only when they ask.
        if self.is_leading:
            ids = [self.routes.id_of(node) for node in self._learners]
            self.engine.push(applied, ids)
        # Before the delivery, which an earlier entry may hold up: voters are in force by the engine's position, and
        # this member must not campaign by the old ones until that entry has come.
        self._voter_changer.on_applied(applied)
        self.delivery.applied(applied)
        if self.delivery.needs_snapshot is not None:
            self._listener.lacks_snapshot()

    def _deliver(self, applied: Applied, payload: Buffer | None) -> None:
        position, value = applied.position, applied.value
        # Void values and those that name nothing (barriers, NOPs) are of no effect.
        if applied.verdict is Verdict.APPLIED and payload is not None:
            if value.kind is Kind.VOTERS:
                self._deliver_voters(decode_voters(bytes(payload)), position)
            else:
                self._listener.applied(bytes(payload), value.base_offset, position)
        self._appends.settle(applied)

    def _deliver_voters(self, voters: VoterSet, position: int) -> None:
        # Whom to ask at the next start; who votes is told by the log alone.
        self._member.contacts = voters
        self.disk.refresh(self.engine.node.replica.metadata)
        self._listener.voters_applied(voters, position)
