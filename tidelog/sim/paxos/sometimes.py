"""States that a batch of runs has to reach now and then; without them the absence of failures proves nothing.

`SOMETIMES` names them all. Tests fail if one of them was never seen over a batch.
"""

from __future__ import annotations

from tidelog.replication.paxos.apply import Verdict
from tidelog.replication.paxos.events import (
    Applied,
    Effect,
    Elected,
    Jumped,
    Lost,
    Persist,
    Proposed,
    Reason,
    Refused,
    Released,
    Repaired,
    StatusChanged,
    VotersFound,
)
from tidelog.replication.paxos.messages import (
    Message,
    PromiseRequest,
    PromiseResponse,
    Reply,
    WriteRequest,
    WriteResponse,
)
from tidelog.replication.paxos.predecessors import are_named
from tidelog.replication.paxos.state import Kind, Prefix, Status
from tidelog.sim.paxos.sim_node import SimNode
from tidelog.sim.paxos.truth import Truth

SOMETIMES = (
    "a batch is acknowledged",
    "a batch is acknowledged after its coordinator was replaced",
    "a candidate is two changes of voters behind",
    "a change of voters is given up",
    "a change of voters is lost with its leader",
    "a change of voters is proposed",
    "a coordinator is elected",
    "a coordinator is lost with several batches in flight",
    "a disk is wiped",
    "a disk votes again under another id",
    "a duel takes three rounds",
    "a faulty payload is applied unread",
    "a faulty payload is repaired",
    "a faulty slot is reported in a promise",
    "a batch is released above a hole",
    "a batch that names others is void",
    "a batch needs more than it can name",
    "a ghost is adopted",
    "a ghost is void",
    "a batch behind a gap is void",
    "a hole is filled",
    "a leader leaves the voters",
    "a learned slot answers a write",
    "a log begins later",
    "a log jumps to a floor",
    "a lost disk is taken for a new one",
    "a message of a lost incarnation arrives",
    "a node halts",
    "a non-voter is asked",
    "a payload is damaged",
    "a promise is refused",
    "a quorum is healed",
    "a rejoin begins",
    "a rejoined replica votes",
    "a second change of voters is refused",
    "a slot has lost its value's name",
    "a value is proposed by its name alone",
    "a voter is enlisted",
    "a voter is told of voters",
    "a window is full",
    "a write is refused",
    "a write is refused by what was accepted alone",
    "an election waits for a payload",
    "several batches are in flight",
    "the last copies are lost",
    "voters are applied unread",
    "voters are changed",
    "voters are found",
    "voters are in force",
)


class Sometimes:
    """Counts the states that a run reaches. It checks no invariant."""

    sends = (PromiseRequest, PromiseResponse, WriteRequest, WriteResponse)
    hears = (PromiseResponse,)
    watches = (
        Applied,
        Elected,
        Jumped,
        Lost,
        Persist,
        Proposed,
        Refused,
        Released,
        Repaired,
        StatusChanged,
        VotersFound,
    )

    def __init__(self, truth: Truth, *, has_spares: bool) -> None:
        self._truth = truth
        self._has_spares = has_spares
        self._lost_in_a_row = 0

    def check(self, node: SimNode, effect: Effect) -> None:
        match effect:
            case Applied():
                self._applied(node, effect)
            case Proposed():
                self._saw("several batches are in flight", bool(node.pending))
                is_keyed = effect.value.digest in self._truth.keys
                self._saw("a batch needs more than it can name", is_keyed and 0 < effect.value.begin < effect.position)
            case Released(position):
                self._saw("a batch is released above a hole", position > node.core.replica.applied.position)
            case Elected():
                self._saw("a coordinator is elected")
                self._lost_in_a_row = 0
            case Lost():
                self._lost_in_a_row += 1
                self._saw("a duel takes three rounds", self._lost_in_a_row == 3)
                self._saw("a coordinator is lost with several batches in flight", len(node.pending) >= 2)
            case Persist(records=(Prefix(),)):
                self._saw("a log begins later")
            case _:
                self._check_outcome(node, effect)

    def _check_outcome(self, node: SimNode, effect: Effect) -> None:
        match effect:
            case Jumped():
                self._saw("a log jumps to a floor")
            case Repaired():
                self._saw("a faulty payload is repaired")
            case Refused(reason=Reason.WINDOW_FULL):
                self._saw("a window is full")
            case VotersFound():
                self._saw("voters are found")
            case StatusChanged(Status.VOTING):
                self._saw("a voter is enlisted", self._has_spares)
                self._saw("a rejoined replica votes", node.disk.metadata.promised > 0)

    def sent(self, node: SimNode, message: Message) -> None:
        match message:
            case PromiseRequest():
                self._saw("an election waits for a payload", bool(node.core.unsettled))
                newer = [position for position, _ in self._truth.voters if position > node.membership.position]
                self._saw("a candidate is two changes of voters behind", len(newer) >= 2)
            case WriteRequest(number, _, value):
                self._saw("a hole is filled", value.kind is Kind.NOP)
                self._saw("a value is proposed by its name alone", message.is_named)
                self._saw("a ghost is adopted", value.birth not in {0, number})
            case WriteResponse(reply=Reply.REJECT, number=number):
                self._saw("a write is refused")
                is_promised = number < node.core.replica.metadata.promised
                self._saw("a write is refused by what was accepted alone", not is_promised)
            case WriteResponse(reply=Reply.LEARNED):
                self._saw("a learned slot answers a write")
            case WriteResponse(reply=Reply.IGNORED) | PromiseResponse(reply=Reply.IGNORED):
                self._saw("a non-voter is asked")
            case WriteResponse(reply=Reply.STORAGE_ERROR) | PromiseResponse(reply=Reply.STORAGE_ERROR):
                self._saw("a node halts")
            case PromiseResponse(reply=Reply.REJECT):
                self._saw("a promise is refused")
            case PromiseResponse(slots=slots) if slots:
                self._saw("a faulty slot is reported in a promise", any(slot.faulty for slot in slots))

    def heard(self, node: SimNode, sender: int, message: Message) -> None:
        attempt = self._truth.attempts.get(node.core.replica.metadata.issued)
        if isinstance(message, PromiseResponse) and attempt is not None and message.reply is Reply.ACCEPT:
            self._saw("a voter is told of voters", message.learned_end <= attempt.voters_position)

    def _applied(self, node: SimNode, effect: Applied) -> None:
        is_own = node.pending.get(effect.position) == effect.value and effect.verdict is Verdict.APPLIED
        self._saw("a batch is acknowledged", is_own)
        is_replaced = is_own and (node.core.coordinator is None or node.core.coordinator.number != effect.value.birth)
        self._saw("a batch is acknowledged after its coordinator was replaced", is_replaced)
        if effect.verdict is Verdict.VOID and effect.position < len(self._truth.prefixes):
            is_ghost = effect.value.birth < self._truth.prefixes[effect.position].epoch
            self._saw("a ghost is void" if is_ghost else "a batch behind a gap is void")
            self._saw("a batch that names others is void", not is_ghost and are_named(effect.value.begin))
        self._saw("a faulty payload is applied unread", effect.is_faulty)

    def _saw(self, name: str, is_seen: bool = True) -> None:
        if is_seen:
            self._truth.counters[name] += 1
