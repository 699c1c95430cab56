"""A node of one Paxos log: a replica and, while the node campaigns or leads, a proposer beside it.

This is the entry of the package. The shell (the code with I/O) passes events to the node and carries out its effects
(`events.py`). It has to pass

- `Started` first, once peers can be reached;
- `Stored` as writes become durable, in order, and `StoreFailed` once if one does not;
- `Received` for every message, however late or often it comes, after storing its payloads so that they are found by
  their digests;
- `Elect` when this node should become the log's coordinator: which node and when is decided elsewhere (for a topic's
  partitions by the controller, for the metadata log by an election among its voters), and so is when to give up;
- `Found`, `Enlist` or `Rejoin` if its status is EMPTY, `Rejoin` again if it is RECOVERING;
- `Reconfigure` when the voters change (`voters.py` decides when and how).

A node that is no member (a broker that follows the metadata log) only catches up.

The parts of the node answer each other by return values: before it returns, `step` delivers messages from the node to
itself, and gives the proposer the values that the replica applies.
"""

from __future__ import annotations

from collections import deque

from msgspec import structs

from tidelog.replication.paxos.catchup import Catchup
from tidelog.replication.paxos.coordinator import LogCoordinator
from tidelog.replication.paxos.events import (
    Action,
    Admit,
    Append,
    Applied,
    Damaged,
    Delete,
    Demote,
    Effect,
    Elect,
    Enlist,
    Event,
    Found,
    Halted,
    Jumped,
    Lost,
    Proceed,
    Received,
    Reconfigure,
    Refused,
    Rejoin,
    Restored,
    Send,
    SetTimer,
    Started,
    Stored,
    StoreFailed,
    Timer,
    TimerFired,
    Truncate,
    VotesLost,
)
from tidelog.replication.paxos.messages import (
    Learned,
    LearnRequest,
    LearnResponse,
    Message,
    PromiseRequest,
    PromiseResponse,
    RecoverRequest,
    RecoverResponse,
    WriteRequest,
    WriteResponse,
)
from tidelog.replication.paxos.numbers import NO_NUMBER, next_number
from tidelog.replication.paxos.proposer import Proposer
from tidelog.replication.paxos.recover import Fence, Founding
from tidelog.replication.paxos.refusals import Request, refusal
from tidelog.replication.paxos.replica import Replica
from tidelog.replication.paxos.state import Status, StoredLog
from tidelog.replication.paxos.term import Term
from tidelog.replication.quorum import Quorum, Unanimous


class PaxosNode:
    """The Paxos state machine of one node of a log: takes one event at a time, from one caller. Pure."""

    def __init__(self, node: int, quorum: Quorum, stored: StoredLog, *, window: int, voters_position: int = -1) -> None:
        """Begins with the quorum of the newest VOTERS value below the log's floor (first position), which is at
        `voters_position`, or of the founders. VOTERS values from the floor on come out as `Applied`, and the caller has
        to answer each by `Reconfigure`."""
        self.replica = Replica(stored)
        self._window = window
        self._proposer: Proposer | None = None
        self._heard = NO_NUMBER
        # Only what is left of a log after the loss of a majority decides by all of its members.
        is_union = isinstance(quorum, Unanimous)
        self._go_by(Term(node, quorum, quorum, voters_position, (), stored.voters_since, is_union))
        self._actions: deque[Action] = deque()

    @property
    def coordinator(self) -> LogCoordinator | None:
        """The coordinator if this node is elected, else None."""
        proposer = self._proposer
        return proposer if isinstance(proposer, LogCoordinator) and proposer.is_writing else None

    def set_window(self, window: int) -> None:
        """Sets the number of positions that a coordinator of this node may have in flight, from now on."""
        self._window = window
        if self.coordinator is not None:
            self.coordinator.window = window

    def _go_by(self, term: Term) -> None:
        self.node = term.node
        self._term = term
        self._founding = Founding(term.quorum, self.replica)
        self._catchup = Catchup([member for member in term.quorum.members if member != term.node], self.replica)

    @property
    def is_idle(self) -> bool:
        """True if this node neither leads nor campaigns."""
        return self._proposer is None

    @property
    def unsettled(self) -> tuple[int, ...]:
        """Returns the positions that hold up an election although a quorum has promised: a value may be chosen there of
        which no intact copy has arrived. If that lasts, an operator must bring a copy back."""
        return () if self._proposer is None else self._proposer.unsettled

    @property
    def unheard(self) -> tuple[int, ...]:
        """Returns the voters that have not promised yet in this node's election attempt."""
        return () if self._proposer is None else self._proposer.unheard

    def lacking(self, position: int) -> frozenset[int]:
        """Returns the peers that have learned the value at this position, whose payload this node cannot read, and have
        answered that they lack the payload, too."""
        return self._catchup.lacking(position)

    @property
    def quorum(self) -> Quorum:
        """Returns the quorum that decides about the log's values, as far as this node knows now."""
        return self._term.quorum

    def next_number(self) -> int:
        """Returns the smallest proposal number with which an election of this node may succeed, as far as it knows."""
        metadata = self.replica.metadata
        return next_number(max(self.replica.highest, metadata.issued, self._heard), self.node)

    def step(self, event: Event) -> list[Effect]:
        """Returns the effects of an event, in the order in which they are to be carried out."""
        effects: list[Effect] = []
        actions = self._actions
        actions.extend(self._on_event(event))
        while actions:
            # First in, first out: the order of effects is a promise to the shell, also when one part's word makes
            # another act.
            action = actions.popleft()
            if isinstance(action, Send):
                if action.to == self.node:
                    # The node's own acceptor follows the same rules: its ACCEPT counts once it is durable, and no
                    # earlier than it would be sent to a peer.
                    actions.extend(self._on_message(self.node, action.message))
                else:
                    effects.append(action)
            elif isinstance(action, (Proceed, Admit)):
                actions.extend(self._on_durable(action))
            else:
                effects.append(action)
                if isinstance(action, (Applied, Jumped, Lost)):
                    actions.extend(self._tell_proposer(action))
        return effects

    def _on_event(self, event: Event) -> list[Action]:
        match event:
            case Received(sender, message):
                return self._on_message(sender, message)
            case Stored(sequence):
                return self.replica.journal.stored(sequence)
            case TimerFired(timer, token):
                return self._on_timer(timer, token)
            case Append() | Truncate() | Delete() | Elect() | Found() | Rejoin() | Enlist() | Demote():
                return self._on_request(event)
            case Reconfigure() | VotesLost():
                return self._on_voters(event)
            case Damaged(position) | Restored(position):
                return self.replica.note_payload(position, is_here=isinstance(event, Restored))
            case StoreFailed():
                return self._halt()
            case Started():
                # The log is applied again from its floor on, so that all that was learned reaches the state machine.
                replayed = self.replica.apply()
                return [*replayed, SetTimer(Timer.CATCHUP), *self._founding.ask()]

    # -- what peers say ----------------------------------------------------------------------------------------------

    def _on_message(self, sender: int, message: Message) -> list[Action]:
        match message:
            case WriteRequest() | PromiseRequest():
                return self._on_proposer(sender, message)
            case WriteResponse() | PromiseResponse():
                return self._on_answer(sender, message)
            case Learned():
                return self.replica.hear(message)
            case LearnRequest():
                self._catchup.on_request(sender, message.position)
                return self.replica.tell(sender, message)
            case LearnResponse():
                return self._catchup.on_response(sender, message)
            case RecoverRequest():
                return self._founding.answer(sender)
            case RecoverResponse():
                return self._founding.on_response(sender, message)

    def _on_proposer(self, sender: int, message: WriteRequest | PromiseRequest) -> list[Action]:
        if sender != self.node:
            # Whoever writes to the log is worth asking, member or not: all peers known here may be gone.
            self._catchup.meet(sender)
        if isinstance(message, WriteRequest):
            return self.replica.write(sender, message)
        return self.replica.promise(sender, message)

    def _on_answer(self, sender: int, message: WriteResponse | PromiseResponse) -> list[Action]:
        proposer = self._proposer_of(message.number)
        # The answer to an attempt that has ended, or of a former life of this node: its number is never used again.
        if proposer is None:
            return []
        if isinstance(message, WriteResponse):
            return proposer.on_write(sender, message)
        return proposer.on_promise(sender, message)

    def _proposer_of(self, number: int) -> Proposer | None:
        proposer = self._proposer
        return proposer if proposer is not None and proposer.number == number and not proposer.is_lost else None

    # -- what the shell asks for -------------------------------------------------------------------------------------

    def _on_request(self, event: Request | Demote) -> list[Action]:
        if isinstance(event, Demote):
            return self._demote()
        reason = refusal(event, self.replica, self._term, is_coordinator=self.coordinator is not None)
        if reason is not None:
            return [Refused(event, reason)]
        match event:
            case Elect(number):
                return self._start(LogCoordinator(number, self._term, self.replica, window=self._window))
            case Rejoin(number):
                return self._start(Fence(number, self._term, self.replica))
            case Enlist():
                return self.replica.change(structs.replace(self.replica.metadata, status=Status.VOTING))
            case Found(cluster_id):
                return self._founding.permit(cluster_id)
            case Append():
                return self._elected().append(event)
            case Truncate() | Delete():
                return self._elected().truncate_or_delete(event)

    def _demote(self) -> list[Action]:
        return [] if self._proposer is None else self._proposer.lose(self._proposer.number)

    def _on_voters(self, event: Reconfigure | VotesLost) -> list[Action]:
        if isinstance(event, Reconfigure):
            return self._reconfigure(event)
        lost = frozenset(event.nodes)
        if lost == self._term.lost:
            return []
        # The quorum stays the same: a lost vote is a reason not to wait for a voter, never one to count without it.
        self._term = self._term._replace(lost=lost)
        # An attempt that may be waiting for one of them begins anew; one that is under way without them goes on.
        return self._demote() if self.unsettled else []

    def _reconfigure(self, event: Reconfigure) -> list[Action]:
        assert event.position < max(self.replica.applied.position, 0), "voters come from what is applied here"
        # A term has one quorum from beginning to end: accepts counted under the old one prove nothing under another.
        ended = self._demote()
        self._proposer = None
        since, is_union = self.replica.voters_since, isinstance(event.quorum, Unanimous)
        context = (event.node, event.quorum, event.in_force, event.position, event.settling)
        self._go_by(Term(*context, since, is_union, self._term.lost))
        return ended

    def _elected(self) -> LogCoordinator:
        assert self.coordinator is not None
        return self.coordinator

    def _start(self, proposer: Proposer) -> list[Action]:
        """Starts a proposer's attempt after writing its proposal number to disk."""
        # Asked before, a promise could outlive a crash that forgets the number. Used again, the number could then give
        # one position two values.
        ended = [] if self._proposer is None else self._proposer.lose(proposer.number)
        self._proposer = proposer
        persist = self.replica.issue(proposer.number, is_rejoining=isinstance(proposer, Fence))
        return [*ended, persist, *self.replica.journal.when_durable(Proceed(proposer.number))]

    # -- what the parts tell each other ------------------------------------------------------------------------------

    def _tell_proposer(self, action: Applied | Jumped | Lost) -> list[Action]:
        proposer = self._proposer
        if isinstance(action, Lost):
            self._heard = max(self._heard, action.highest)
            # It may be an earlier proposer's end, while the next one is already here.
            if proposer is not None and proposer.is_lost:
                self._proposer = None
            return []
        if proposer is None or proposer.is_lost:
            return []
        if isinstance(action, Jumped):
            return proposer.on_jumped(action.floor.position)
        return proposer.on_applied(action)

    def _on_durable(self, action: Proceed | Admit) -> list[Action]:
        match action:
            case Proceed(number):
                proposer = self._proposer_of(number)
                return [] if proposer is None else proposer.proceed()
            case Admit(metadata):
                # With the right to vote a fence has done its work.
                if metadata.status is Status.VOTING:
                    self._proposer = None
                # A founder that has become STARTING asks the others again at once.
                return [*self.replica.admit(metadata), *self._founding.ask()]

    def _on_timer(self, timer: Timer, token: int) -> list[Action]:
        # No timer is set again either: a node that can write nothing has nothing to ask for.
        if self.replica.is_halted:
            return []
        match timer:
            case Timer.RESEND:
                proposer = self._proposer_of(token)
                return [] if proposer is None else proposer.on_timer()
            case Timer.CATCHUP:
                return [*self.replica.beat(), *self._catchup.on_timer()]
            case Timer.RECOVER:
                return self._founding.ask()

    def _halt(self) -> list[Action]:
        """Stops promising and proposing, because the disk failed: a write that is not durable by now never will be."""
        # An fsync is never tried again: after a failure the system may have dropped the pages, and then report success.
        ended = [] if self._proposer is None else self._proposer.lose(self._proposer.number)
        self.replica.is_halted = True
        self.replica.journal.drop()
        return [*ended, Halted()]
