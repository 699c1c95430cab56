"""One replica of a log that elects its own leader: what is agreed on, and, at the leader, the way to agree on more.

The metadata log of a cluster is one, and so is a log by itself (`broker.standalone`). Entries are bytes to it. Every
replica runs the same parts. The engine (`replication.paxos`) keeps the log with those of the other brokers; the
election (`replication.election`) says which voter's engine should lead; the delivery brings what is chosen to the
state machine. A leader appends; all others, voters and learners alike, follow.

    append -> Append -> Proposed, WriteRequest... -> accepted by a quorum -> Applied -> delivered -> `append` returns

A change of the voters is a reign of its own (`replication.paxos.voters`): the leader gets itself elected by majorities
of the old voters and of the new, appends the new set, and once that is applied is elected again, by the new alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tidelog.broker.consensus.campaign import Campaigner
from tidelog.broker.consensus.delivery import Delivery
from tidelog.broker.consensus.disk import ReplicaDisk
from tidelog.broker.consensus.engine import Engine, LogEffect
from tidelog.broker.consensus.founding import founders_of
from tidelog.broker.consensus.inflight import InFlightProposal, InFlightProposals, fail, resolve
from tidelog.broker.consensus.listener import LogListener
from tidelog.broker.consensus.messages import ElectionFrame, PaxosFrame
from tidelog.broker.consensus.routes import Routes
from tidelog.model.cluster import Voter
from tidelog.model.errors import ControllerLost, NotController, Overloaded, TidelogError
from tidelog.model.ports import Buffer, Clock, Entropy
from tidelog.replication.election import Election
from tidelog.replication.election_events import (
    Advanced,
    Listeners,
    LostReign,
    PeerDown,
    Promised,
    Reconfigured,
    StepAside,
    Won,
)
from tidelog.replication.election_settings import ElectionSettings
from tidelog.replication.paxos.apply import Verdict
from tidelog.replication.paxos.events import (
    Append,
    Applied,
    Demote,
    Elect,
    Elected,
    Enlist,
    Found,
    Halted,
    Jumped,
    Lost,
    Reason,
    Refused,
    Repaired,
    Started,
    StatusChanged,
    Truncate,
    VotersFound,
)
from tidelog.replication.paxos.messages import LearnResponse, PromiseRequest
from tidelog.replication.paxos.node import PaxosNode
from tidelog.replication.paxos.numbers import NODE_MAX, next_number
from tidelog.replication.paxos.state import Kind, Slot, Status
from tidelog.replication.paxos.voters import (
    InvalidVoters,
    Membership,
    VoterSet,
    decode_voters,
    encode_voters,
    learner_id,
)

CHANGE_S_MAX = 10.0
WAIT_S_MAX = 5.0
"""How long an append waits before its outcome is called unknown."""


class PendingAppend:
    """A call of `ElectedLog.append` that waits for its outcome."""

    def __init__(self) -> None:
        self.outcome: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()

    @property
    def is_waiting(self) -> bool:
        return not self.outcome.done()

    def complete(self, applied: Applied) -> None:
        if not self.outcome.done():
            self.outcome.set_result(applied)

    def fail(self, error: TidelogError) -> None:
        fail(self.outcome, error)


class ElectedLog:
    """Made with what the disk gave back; `start` before anything else. Not thread-safe: for the loop alone."""

    def __init__(
        self,
        node_id: int,
        incarnation: str,
        node: PaxosNode,
        membership: Membership,
        disk: ReplicaDisk,
        routes: Routes,
        listener: LogListener,
        settings: ElectionSettings,
        clock: Clock,
        entropy: Entropy,
        *,
        delivered: int,
        voter_id: int,
    ) -> None:
        """`incarnation` is of the log's disk, and `voter_id` the one that it has, or 0; `delivered` is the position up
        to which the state machine stands, by its snapshot."""
        self.node_id = node_id
        self.engine = Engine(node, disk, routes.post, self, entropy)
        self.membership = membership
        self.delivery = Delivery(delivered, self.engine.payload_of, self._deliver, lambda: node.replica.begin)
        self.number = 0
        """Of this broker's reign; 0 if it does not lead."""
        self.voter_id = voter_id
        """Under which this disk votes, voted, or will; 0 if it never got one. Durable before it is used (`Enlist`)."""
        self.routes = routes
        self._incarnation = incarnation
        self._listener = listener
        metadata = node.replica.metadata
        election = Election(
            node.node,
            membership.quorum(),
            settings,
            now_s=clock.monotonic_s(),
            has_voted_before=metadata.status is Status.VOTING,  # who granted a lease need not have promised
            uniform=entropy.uniform,
            promised=metadata.promised,
        )
        self._campaigner = Campaigner(
            election,
            routes.post,
            campaign=self._campaign,
            resign=lambda: self.engine.step(Demote()),
            leader_changed=self._on_leader_changed,
            me=lambda: self.engine.node.node,
            clock=clock,
        )
        self._attempt = 0
        """The number under which this broker leads, or tries to."""
        self._joining = 0
        """The number under which it wants to lead for a change of voters; 0 if it makes none."""
        self._in_flight = InFlightProposals[PendingAppend]()
        self._changed: asyncio.Future[None] | None = None
        self._learners: tuple[int, ...] = ()
        routes.set_voters(membership.voters)
        floor = node.replica.floor.position
        if floor > delivered:
            membership.on_jumped(floor)
            self.delivery.jumped(floor)

    @property
    def is_leading(self) -> bool:
        """True while this broker may append."""
        return self.number != 0

    @property
    def has_lease(self) -> bool:
        """True if no other broker can lead now, as far as clocks can be trusted."""
        return self.is_leading and self._campaigner.has_lease

    @property
    def applied_position(self) -> int:
        """Up to where the log is known here, if not what it says."""
        return self.engine.node.replica.applied.position

    @property
    def status(self) -> Status:
        """What this broker's disk may do."""
        return self.engine.node.replica.metadata.status

    @property
    def voting_id(self) -> int:
        """The id under which this disk votes, or would if a voter set named it; 0 if it may not."""
        me = self.engine.node.node
        return me if me <= NODE_MAX and self.status is Status.VOTING else 0

    @property
    def belongs(self) -> bool:
        """True unless this broker is still founding its cluster."""
        return self.status is Status.VOTING or self.engine.node.node > NODE_MAX

    def install(self, position: int, voters: VoterSet, voters_position: int) -> None:
        """A snapshot of everything below `position` has been delivered, and these are the voters by it."""
        if self.membership.on_snapshot(voters, voters_position, position):
            self._reconfigure()
        self.delivery.installed(position)

    def start(self, found: str | None) -> None:
        """Begins; `found` is the id of the cluster that this broker is one of the founders of, on a new disk."""
        self.engine.step(Started())
        if found is not None:
            self.engine.step(Found(found))
        self._begin_campaigning()

    def _begin_campaigning(self) -> None:
        if self.belongs:
            self._campaigner.begin()

    def close(self) -> None:
        """No timer fires any more, and nobody waits; what is asked of the disk may still come."""
        self.engine.close()
        self._campaigner.close()
        self._in_flight.fail(ControllerLost("this broker is stopping; the outcome is unknown"))
        fail(self._changed, ControllerLost("this broker is stopping; the outcome is unknown"))

    def resign(self) -> None:
        """Stops leading, if it does: somebody is elected anew, and at once."""
        self._campaigner.step(StepAside(None))

    # -- from the network --------------------------------------------------------------------------------------------

    def receive_paxos(self, node_id: int, frame: PaxosFrame, payload: memoryview) -> None:
        """A peer's engine speaks."""
        self.routes.heard(frame.sender, node_id)
        if isinstance(frame.message, PromiseRequest) and frame.to == self.engine.node.node:
            if not self._campaigner.may_promise(frame.sender):
                return  # a lease binds this voter: the request counts as lost, and comes again
            self._campaigner.step(Promised(frame.message.number))
        self.engine.receive(frame, payload)

    def receive_election(self, node_id: int, frame: ElectionFrame) -> None:
        """A peer's election speaks."""
        self.routes.heard(frame.sender, node_id)
        self._campaigner.receive(frame)

    def peer_down(self, node_id: int) -> None:
        """This broker's process has ended."""
        for engine_id in self.routes.ids_on(node_id):
            self._campaigner.step(PeerDown(engine_id))

    def set_learners(self, node_ids: Sequence[int]) -> None:
        """The brokers that are registered: those that have no vote hear this one's heartbeats if it leads."""
        voters = [voter.node_id for voter in self.membership.voters.voters]
        self._learners = tuple(node for node in node_ids if node not in voters and node != self.node_id)
        self._campaigner.step(Listeners(tuple(self.routes.id_of(node) for node in self._learners)))

    # -- leading -----------------------------------------------------------------------------------------------------

    async def append(self, payload: bytes, count: int) -> Applied:
        """Has an entry agreed on, which takes `count` offsets, and applied here; returns where.

        Raises, surely without effect: `NotController`, `Overloaded`. With an effect or not: `ControllerLost`.
        """
        return await self._propose(Append(count, self.engine.payloads.hold(payload)))

    async def truncate(self, begin: int) -> None:
        """Has the log begin at `begin`, which a snapshot of a majority must cover. Raises as `append`."""
        await self._propose(Truncate(begin))

    async def _propose(self, event: Append | Truncate) -> Applied:
        if not self.is_leading or self._changed is not None:
            raise NotController("this broker does not lead the log now")
        answer = self.engine.propose(event)
        if isinstance(answer, Refused):
            reason = f"the log takes nothing now ({answer.reason.value})"
            is_full = answer.reason is Reason.WINDOW_FULL
            raise Overloaded(f"{reason}; try again") if is_full else NotController(reason)
        assert answer is not None, "nobody appends from within a step of the engine"
        pending = PendingAppend()
        proposal = InFlightProposal[PendingAppend](answer.value)
        proposal.waiters.append(pending)
        self._in_flight.add(answer.position, proposal)
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                return await pending.outcome
        except TimeoutError:
            raise ControllerLost("the brokers could not agree in time; whether they will is unknown") from None

    async def change_voters(self, *, add: Voter | None = None, remove: int | None = None) -> None:
        """Has one voter added, or one (by its id) removed; nothing may be appended meanwhile.

        Returns when the new voters have elected this broker; if it is not one of them, when they are in force. Raises
        `NotController` if nothing has begun, `ControllerLost` if it may have.
        """
        if not self.is_leading or self._changed is not None or self._in_flight:
            raise NotController("this broker cannot change the voters now; try again")
        try:
            voters = self.membership.voters.with_change(add=add, remove=remove)
            self.membership.begin(voters, self.number)
        except InvalidVoters as error:
            raise NotController(f"the voters cannot be changed now: {error}") from error
        number = self._joining = self.engine.node.next_number()
        self.membership.join(number)
        self._changed = asyncio.get_running_loop().create_future()
        self._depose()
        self._reconfigure()
        try:
            async with asyncio.timeout(CHANGE_S_MAX):
                await self._changed
        except TimeoutError:
            if self.membership.on_lost(number):
                self._reconfigure()
            raise ControllerLost("the voters could not be changed in time; whether they will is unknown") from None
        finally:
            self._changed = None
            self._joining = 0

    def _on_refused(self, refused: Refused) -> None:
        if isinstance(refused.event, Elect):
            self._on_lost(refused.event.number)

    # -- what the engine says ----------------------------------------------------------------------------------------

    def on_effect(self, effect: LogEffect) -> None:
        """For the engine."""
        match effect:
            case Applied():
                self._on_applied(effect)
            case Repaired(position):
                self._on_repaired(position)
            case Refused():
                self._on_refused(effect)
            case Elected() | Lost() | VotersFound():
                self._on_election(effect)
            case Jumped(floor):
                self.membership.on_jumped(floor.position)
                self.delivery.jumped(floor.position)
                self._listener.lacks_snapshot()
            case StatusChanged():
                self._begin_campaigning()
            case Halted():
                self._listener.halted()

    def _on_election(self, effect: Elected | Lost | VotersFound) -> None:
        match effect:
            case Elected(number):
                self._on_elected(number)
            case Lost(number):
                self._on_lost(number)
            case VotersFound():
                self._on_voters_found(effect)

    def _on_applied(self, applied: Applied) -> None:
        self._campaigner.step(Advanced(applied.position + 1))
        if self.is_leading:
            self._push(applied)
        self._tell_membership(applied)
        self.delivery.applied(applied)
        if self.delivery.needs_snapshot is not None:
            self._listener.lacks_snapshot()

    def _push(self, applied: Applied) -> None:
        """Voters hold what they accepted and need no more than a notice; learners would wait for their own timer."""
        slot = Slot(applied.position, 0, applied.value, learned=True)
        response = LearnResponse(self.engine.node.replica.floor, (slot,), applied.position + 1)
        for node in self._learners:
            self.engine.push(self.routes.id_of(node), response)

    def _deliver(self, applied: Applied, payload: Buffer | None) -> None:
        position, value = applied.position, applied.value
        if applied.verdict is Verdict.APPLIED and payload is not None:
            if value.kind is Kind.VOTERS:
                self._listener.voters_applied(decode_voters(bytes(payload)), position)
            else:
                self._listener.applied(bytes(payload), value.base_offset, position)
        self._settle(applied)

    def _settle(self, applied: Applied) -> None:
        """Answers whoever waits for what was proposed at this position."""
        proposal = self._in_flight.take(applied.position)
        if proposal is None:
            return
        if not proposal.is_in_log(applied):
            proposal.fail(NotController("another leader came first; nothing was appended"))
        for pending in proposal.waiters:
            pending.complete(applied)

    def _on_repaired(self, position: int) -> None:
        slot = self.engine.node.replica.slots.get(position)
        if slot is not None and slot.value.kind is Kind.VOTERS:
            self._tell_membership(Applied(position, slot.value, Verdict.APPLIED))
        self.delivery.advance()

    # -- elections and voters ----------------------------------------------------------------------------------------

    @property
    def my_id(self) -> int:
        """The engine id that this broker should go by. A voter that was removed keeps its id: somebody who has not
        heard of it may need its vote to settle what came before."""
        voter = self.membership.voter_of(self.node_id, self._incarnation)
        if voter is not None:
            return voter.voter_id
        return self.voter_id or learner_id(self.node_id)

    def enlist(self, voter_id: int) -> None:
        """The cluster gave this disk an id to vote under; its vote counts when a voter set names it."""
        self.voter_id = voter_id
        if self.my_id != self.engine.node.node:
            self._reconfigure()
        self.engine.step(Enlist())

    def _campaign(self) -> None:
        if not self.membership.is_known:
            self._campaigner.step(LostReign(self._attempt))
            return
        led = self._campaigner.election.number  # of a leader, this engine may have heard nothing
        number = self._attempt = max(self.engine.node.next_number(), next_number(led, self.engine.node.node))
        if self._joining not in (0, number) and self.membership.on_lost(self._joining):
            fail(self._changed, ControllerLost("another broker came between while the voters changed"))
            self._reconfigure()  # which campaigns again, among the old voters
            return
        self._campaigner.step(Promised(number))
        self.engine.step(Elect(number))

    def _on_elected(self, number: int) -> None:
        voters = self.membership.write(number)
        if voters is None and self.engine.node.replica.voters_position < 0:
            voters = founders_of(self.engine.node.replica.metadata, self.membership.voters)  # for all to read
        if voters is not None:
            self.engine.step(Append(0, self.engine.payloads.hold(encode_voters(voters)), Kind.VOTERS))
            return
        if self.delivery.position < self.engine.node.replica.applied.position:
            self.engine.step(Demote())  # something agreed on cannot be read here yet: others can do better
            return
        self._campaigner.step(Won(number))
        if self._attempt == number:
            self.number = number
            self._listener.leading(number)
            resolve(self._changed)

    def _on_lost(self, number: int) -> None:
        is_open = self.membership.on_lost(number)
        if is_open:
            fail(self._changed, ControllerLost("the leader was lost while the voters changed"))
        if number == self._attempt:
            self._attempt = 0
            self._depose()
            self._campaigner.step(LostReign(number))
        if is_open:
            self._reconfigure()

    def _depose(self) -> None:
        if self.number:
            self.number = 0
            self._listener.deposed()

    def _on_voters_found(self, found: VotersFound) -> None:
        payload = self.engine.payload_of(found.position, found.value)
        if payload is not None and self.membership.on_found(found.position, found.value, decode_voters(payload)):
            self._reconfigure()

    def _tell_membership(self, applied: Applied) -> None:
        voters = None
        if applied.value.kind is Kind.VOTERS:
            payload = self.engine.payload_of(applied.position, applied.value)
            if payload is None and applied.verdict is Verdict.APPLIED:
                self.membership.on_unread(applied.position)
                return
            voters = None if payload is None else decode_voters(payload)
        if self.membership.on_applied(applied.position, voters, applied.verdict):
            self._reconfigure()

    def _reconfigure(self) -> None:
        """Engine and election go by what the membership says now. A leader is elected anew among the new voters."""
        me = self.my_id
        self._attempt = 0
        self._depose()
        self.routes.set_voters(self.membership.voters)
        self.engine.step(self.membership.reconfigure(me))
        self._campaigner.step(Reconfigured(me, self.membership.quorum()))
        if me not in self.membership.quorum():
            resolve(self._changed)

    def _on_leader_changed(self, leader: int | None) -> None:
        if leader is None or leader == self.engine.node.node:
            self._listener.leader_changed(None if leader is None else self.node_id)
        else:
            self._listener.leader_changed(self.routes.node_of(leader))
