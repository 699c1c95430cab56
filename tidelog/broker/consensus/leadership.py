"""Leadership of a log, from one member's view: whether it leads, under which ballot number, and by which voters.

The election (`replication.election`) decides when to campaign, the engine whether it was won, and the voters in force
whom to ask (`voter_change`). `Leadership` connects them; what a leader appends is decided elsewhere.

    election -> campaign -> Elect -> Elected -> Won -> leading
                                     Lost    -> LostTerm -> the election waits, and tries again

A member that cannot read a chosen entry cannot lead. It campaigns only if entries are accepted and not known to be
chosen, which an election settles: each election adds an entry of its own, and would achieve nothing while all members
lack the same payload.
"""

from __future__ import annotations

from tidelog.broker.consensus.campaign import Campaigner
from tidelog.broker.consensus.delivery import Delivery
from tidelog.broker.consensus.engine import Engine
from tidelog.broker.consensus.founding import founders_of
from tidelog.broker.consensus.listener import LeaderListener
from tidelog.broker.consensus.log_member import LogContext, LogMember
from tidelog.broker.consensus.messages import ElectionFrame
from tidelog.broker.consensus.routes import Routes
from tidelog.broker.consensus.voter_change import VoterChanger
from tidelog.model.errors import NotController
from tidelog.replication.election import Election
from tidelog.replication.election_events import LostTerm, Promised, Ready, Reconfigured, StepAside, Won
from tidelog.replication.paxos.events import Demote, Elect, Enlist
from tidelog.replication.paxos.numbers import next_number
from tidelog.replication.paxos.state import Status
from tidelog.replication.paxos.voters import Membership, learner_id


class Leadership:
    """The `Candidate` of a log's voter changes, and the host of its election campaigns."""

    def __init__(
        self,
        member: LogMember,
        engine: Engine,
        membership: Membership,
        routes: Routes,
        delivery: Delivery,
        context: LogContext,
        listener: LeaderListener,
    ) -> None:
        self.number = 0
        """The ballot number of this member's term; 0 if it does not lead."""
        self._member = member
        self._engine = engine
        self._routes = routes
        self._delivery = delivery
        self._listener = listener
        self._attempt = 0
        """The ballot number under which this member leads, or campaigns now."""
        self._is_held_up = False
        """True if this member has not campaigned because a chosen entry cannot be read here."""
        metadata = engine.node.replica.metadata
        election = Election(
            engine.node.node,
            membership.quorum(),
            context.settings,
            now_s=context.clock.monotonic_s(),
            has_voted_before=metadata.status is Status.VOTING,  # who granted a lease need not have promised
            uniform=context.entropy.uniform,
            promised=metadata.promised,
        )
        self.campaigner = Campaigner(election, self, context.clock)
        self.voter_changer = VoterChanger(engine, membership, routes, self, refusal=NotController)

    @property
    def is_drained(self) -> bool:
        """True of a leader without proposals in flight."""
        coordinator = self._engine.node.coordinator
        return coordinator is not None and coordinator.is_drained

    def resign(self, heir: int | None = None) -> None:
        """Stops leading, if this member does, so that a new leader is elected at once; the voter `heir`, if given,
        campaigns first."""
        self.campaigner.step(StepAside(heir))

    def close(self) -> None:
        """Cancels all timers, and fails a waiting change of voters."""
        self.campaigner.close()
        self.voter_changer.close()

    def enlist(self, voter_id: int) -> None:
        """Takes the voter id that the log gives this disk; its vote counts when a voter set names the id."""
        member = self._member
        # The id was this disk's before, or another's: a vote under it could contradict what was promised then.
        if self.voter_changer.membership.is_used_up(voter_id, member.node_id, member.incarnation):
            return
        member.voter_id = voter_id
        if self.engine_id != self._engine.node.node:
            self.voter_changer.reconfigure()
        # A disk that never voted under this id has forgotten nothing, and may vote at once.
        self._engine.step(Enlist())

    # -- `Candidate`, for the change of voters -------------------------------------------------------------------------

    @property
    def engine_id(self) -> int:
        """The engine id for this disk under the voters in force. A removed voter keeps its id: a candidate that has not
        heard of the removal may need its vote to settle earlier entries."""
        member = self._member
        voter = self.voter_changer.membership.voter_of(member.node_id, member.incarnation)
        return voter.voter_id if voter is not None else member.voter_id or learner_id(member.node_id)

    def next_number(self) -> int:
        led = self.campaigner.election.number  # of a leader, this engine may have heard nothing
        return max(self._engine.node.next_number(), next_number(led, self._engine.node.node))

    def hold(self) -> None:
        """Ends the leadership for the listener, since a change of voters begins: further appends are refused."""
        if self.number:
            # Before the listener hears of it: whatever it wants appended now must be refused.
            self.number = 0
            self._listener.deposed()

    def end_term(self) -> None:
        self._attempt = 0
        self.hold()

    def seek_election(self) -> None:
        """Makes a leader or candidate campaign at once, among the voters in force now."""
        self.campaigner.step(Reconfigured(self.engine_id, self.voter_changer.membership.quorum()))

    # -- `CampaignHost`, for the election ------------------------------------------------------------------------------

    @property
    def current_id(self) -> int:
        return self._engine.node.node

    def post(self, to: int, frame: ElectionFrame) -> None:
        self._routes.post(to, frame)

    def demote(self) -> None:
        self._engine.step(Demote())

    def campaign(self) -> None:
        # Each campaign adds a barrier. If nobody can read the same entry, campaigns without use would make all logs
        # grow.
        is_of_use = not self._delivery.is_held_up or self._engine.node.replica.is_any_open
        self._is_held_up = not (self.voter_changer.membership.is_known and is_of_use)
        if self._is_held_up:
            self.campaigner.step(LostTerm(self._attempt))
            return
        number = self._attempt = self.next_number()
        if self.voter_changer.is_overtaken(number):
            return  # it campaigns again already, among the old voters
        # The candidate promises itself first: it must answer no heartbeat of an older number from here on.
        self.campaigner.step(Promised(number))
        self._engine.step(Elect(number))

    def leader_changed(self, leader: int | None) -> None:
        if leader is None or leader == self._engine.node.node:
            self._listener.leader_changed(None if leader is None else self._member.node_id)
        else:
            self._listener.leader_changed(self._routes.node_of(leader))

    # -- what the engine says ------------------------------------------------------------------------------------------

    def on_elected(self, number: int) -> None:
        """Begins the term, as this member's barrier (the first entry of its term) is applied; writes voters first if it
        was elected for that."""
        if self.voter_changer.write(number):
            return
        replica = self._engine.node.replica
        if replica.voters_position < 0:  # the founders are the log's first value, for all to read
            self.voter_changer.append(founders_of(replica.metadata, self.voter_changer.membership.voters))
            return
        # A leader decides by all that is agreed on; one that lacks an entry would decide by another image.
        if self._delivery.position < replica.applied.position:
            self._engine.step(Demote())  # something agreed on cannot be read here yet
            return
        self.campaigner.step(Won(number))
        # `Won` may have ended the term at once, if the election has heard of a larger number.
        if self._attempt == number:
            self.number = number
            self._listener.leading(number)
            self.voter_changer.settle()

    def on_read(self) -> None:
        """Makes this member campaign soon, if the entry that kept it from campaigning can be read now."""
        if self._is_held_up and not self._delivery.is_held_up:
            self._is_held_up = False
            self.campaigner.step(Ready())

    def on_lost(self, number: int) -> None:
        """Ends this member's term, or its attempt, under ballot number `number`."""
        # The change first: ending the term asks for another election, which goes by the membership.
        is_change_over = self.voter_changer.lose(number)
        if number == self._attempt:
            self.end_term()
            self.campaigner.step(LostTerm(number))
        if is_change_over:
            self.voter_changer.reconfigure()
