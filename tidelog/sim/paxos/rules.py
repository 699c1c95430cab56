"""The premises of Paxos' safety proof as invariants. They are violated long before a client could notice it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from tidelog.replication.paxos.events import DeletePrefix, Effect, Elected, Persist, Proposed, StatusChanged
from tidelog.replication.paxos.messages import (
    Message,
    PromiseRequest,
    PromiseResponse,
    Reply,
    WriteRequest,
    WriteResponse,
)
from tidelog.replication.paxos.state import Kind, Metadata, Prefix, Record, Slot, Status, Value
from tidelog.sim.paxos.invariant import Invariant
from tidelog.sim.paxos.log_disk import LogDisk
from tidelog.sim.paxos.outcomes import OUTCOMES
from tidelog.sim.paxos.truth import Truth
from tidelog.sim.paxos.voter_rules import QuorumsInForce, VotersComeAlone

if TYPE_CHECKING:
    from tidelog.sim.paxos.sim_node import SimNode


class OneCoordinatorPerNumber(Invariant):
    """Checks that a ballot is used by one attempt of one process only, not by another node or a later process of the
    same node."""

    name = "one coordinator per number"
    watches = (Elected,)
    sends = (PromiseRequest,)

    def __init__(self, truth: Truth) -> None:
        super().__init__(truth)
        self._users: dict[int, tuple[int, int]] = {}
        self._elected: set[int] = set()

    def check(self, node: SimNode, effect: Effect) -> None:
        assert isinstance(effect, Elected)
        self.require(effect.number not in self._elected, node.node, effect)
        self._elected.add(effect.number)

    def sent(self, node: SimNode, message: Message) -> None:
        assert isinstance(message, PromiseRequest)
        user = self._users.setdefault(message.number, (node.node, node.boot))
        self.require(user == (node.node, node.boot), node.node, message, "used by", user)


class PromisesHold(Invariant):
    """Checks that on one disk promises and accepted ballots never decrease, and that nothing below the promise is
    accepted."""

    name = "promises hold"
    watches = (Persist,)

    def check(self, node: SimNode, effect: Effect) -> None:
        assert isinstance(effect, Persist)
        for record in effect.records:
            if isinstance(record, Metadata):
                self.require(record.promised >= node.promised, node.node, record, "after", node.promised)
                self.require(record.issued >= node.disk.metadata.issued, node.node, record)
                node.promised = record.promised
            elif isinstance(record, Slot) and not record.learned:
                old = node.disk.slots.get(record.position)
                self.require(record.number >= node.promised, node.node, record, "after", node.promised)
                self.require(old is None or record.number >= old.number, node.node, record, "after", old)
                self.require(old is None or not old.learned, node.node, record, "after", old)


class LearnedWasChosen(Invariant):
    """Checks that a value is learned only if a quorum, or a majority of the voters in force there, has accepted it
    under one ballot."""

    name = "learned was chosen"
    watches = (Persist,)

    def check(self, node: SimNode, effect: Effect) -> None:
        assert isinstance(effect, Persist)
        for record in effect.records:
            if isinstance(record, Slot) and record.learned:
                chosen = self.truth.chosen.get(record.position)
                self.require(chosen == record.value, node.node, record, "chosen is", chosen)


class LogsBeginWhereTruncated(Invariant):
    """Checks that a log begins where an applied truncation says, with the state that was applied up to there."""

    name = "logs begin where truncated"
    watches = (Persist,)

    def check(self, node: SimNode, effect: Effect) -> None:
        assert isinstance(effect, Persist)
        for record in effect.records:
            if isinstance(record, Prefix):
                self.require(record.position in self.truth.floors, node.node, record)
                self.require(record == self.truth.prefixes[record.position], node.node, record)
                self.require(record.position <= node.core.replica.end, node.node, record)
                self.require(record.position >= node.disk.floor.position, node.node, record)


class DurableBeforeVisible(Invariant):
    """Checks that a replica that answers ACCEPT is a voter and has its answer on disk, and that a ballot is recorded as
    issued before it is used."""

    name = "durable before visible"
    watches = (DeletePrefix, StatusChanged)
    sends = (PromiseRequest, PromiseResponse, WriteResponse)

    def check(self, node: SimNode, effect: Effect) -> None:
        if isinstance(effect, DeletePrefix):
            self.require(node.disk.floor.position >= effect.begin, node.node, effect)
        elif isinstance(effect, StatusChanged):
            self.require(node.disk.metadata.status is effect.status, node.node, effect)

    def sent(self, node: SimNode, message: Message) -> None:
        metadata = node.disk.metadata
        if isinstance(message, PromiseRequest):
            self.require(metadata.issued >= message.number, node.node, message)
        elif isinstance(message, (PromiseResponse, WriteResponse)) and message.reply is Reply.ACCEPT:
            self.require(metadata.status is Status.VOTING, node.node, "does not vote", message)
            if isinstance(message, PromiseResponse):
                self.require(metadata.promised >= message.number, node.node, message)
            else:
                slot = node.disk.slots.get(message.position)
                is_held = slot is not None and (slot.learned or slot.number >= message.number)
                self.require(is_held or message.position in self.truth.chosen, node.node, message, slot)


class FaultyIsTold(Invariant):
    """Checks that a promise reports every slot accepted under a smaller ballot, including unreadable ones, and each
    with its ballot or a larger one."""

    name = "faulty is told"
    sends = (PromiseRequest, PromiseResponse)

    def __init__(self, truth: Truth) -> None:
        super().__init__(truth)
        self._starts: dict[int, int] = {}

    def sent(self, node: SimNode, message: Message) -> None:
        if isinstance(message, PromiseRequest):
            self._starts[message.number] = message.position
        elif isinstance(message, PromiseResponse) and message.reply is Reply.ACCEPT:
            start = max(self._starts[message.number], message.learned_end)
            reported = {slot.position: slot for slot in message.slots}
            for position, slot in node.disk.slots.items():
                if position >= start and 0 < slot.number < message.number:
                    is_reported = position in reported and (
                        reported[position].learned or reported[position].number >= slot.number
                    )
                    self.require(is_reported, node.node, slot, "is missing in", message)


class NewAboveReported(Invariant):
    """Checks that a coordinator proposes its own values only above all positions that the promises of its quorum
    report."""

    name = "new above reported"
    sends = (WriteRequest,)
    hears = (PromiseResponse,)

    def __init__(self, truth: Truth) -> None:
        super().__init__(truth)
        self._reported: dict[int, dict[int, int]] = {}

    def heard(self, node: SimNode, sender: int, message: Message) -> None:
        """Records, for each other node, the end of the positions that its first promise reports. Stops once these nodes
        are a quorum together with the coordinator: later promises may come too late to be counted by it."""
        assert isinstance(message, PromiseResponse)
        ends = self._reported.setdefault(message.number, {})
        if message.reply is not Reply.ACCEPT or self.truth.is_quorum(message.number, {node.node, *ends}):
            return
        if message.learned_end > self.truth.attempts[message.number].voters_position:
            ends.setdefault(sender, max([message.learned_end, *(slot.position + 1 for slot in message.slots)]))

    def sent(self, node: SimNode, message: Message) -> None:
        assert isinstance(message, WriteRequest)
        if message.value.birth == message.number:
            reported = max(self._reported.get(message.number, {}).values(), default=0)
            self.require(message.position >= reported, node.node, message, "reported to", reported)


class BarrierFirst(Invariant):
    """Checks that no client's value is proposed before the barrier (the first value) of its coordinator is chosen."""

    name = "barrier first"
    sends = (WriteRequest,)

    def sent(self, node: SimNode, message: Message) -> None:
        assert isinstance(message, WriteRequest)
        if message.value.kind in (Kind.APPEND, Kind.TRUNCATE, Kind.DELETE, Kind.VOTERS):
            self.require(message.value.birth in self.truth.barriers, node.node, message)


class HoleSpanIsKept(Invariant):
    """Checks that a coordinator proposes nothing more than `window` positions above the first that it has not
    applied."""

    name = "hole span is kept"
    watches = (Proposed,)

    def check(self, node: SimNode, effect: Effect) -> None:
        assert isinstance(effect, Proposed)
        self.require(effect.position - node.core.replica.applied.position < node.window, node.node, effect)


class VotersAreAdmitted(Invariant):
    """Checks that a node votes with a new disk only if it never voted before, or behind a fence: its promise is at
    least every ballot that it ever voted for, and a quorum of other nodes has promised as much."""

    name = "voters are admitted"
    watches = (StatusChanged,)

    def check(self, node: SimNode, effect: Effect) -> None:
        assert isinstance(effect, StatusChanged)
        voted = self.truth.voted.get(node.node, 0)
        if effect.status is not Status.VOTING or not voted:
            return
        fence = node.disk.metadata.promised
        self.require(fence >= voted and fence == node.disk.metadata.issued, node.node, node.disk.metadata, voted)
        others = sum(1 for voter, number in self.truth.voted.items() if voter != node.node and number >= fence)
        self.require(others >= self.truth.quorum_size, node.node, "only", others, "promised", fence)


class EveryQuorumKnows(Invariant):
    """Checks that from the disks of every quorum of voters a new coordinator would find the chosen value of each
    position.

    This is the induction step of Paxos' proof. It notices errors that no later election of the run happens to reveal.
    """

    name = "every quorum knows"
    lands = (Slot, Metadata)

    def __init__(self, truth: Truth) -> None:
        super().__init__(truth)
        self._voting: set[str] = set()

    def landed(self, node: SimNode, record: Record) -> None:
        if isinstance(record, Slot):
            if record.position in self.truth.chosen:
                self._judge_position(record.position)
        elif isinstance(record, Metadata) and record.status is Status.VOTING and record.incarnation not in self._voting:
            self._voting.add(record.incarnation)
            self.at_end()

    def at_end(self) -> None:
        for position in self.truth.chosen:
            self._judge_position(position)

    def _judge_position(self, position: int) -> None:
        """Checks a position with the newest voters that are known there. Values that later voters have not copied
        cannot be checked with them."""
        truth = self.truth
        _, members = truth.voters_at(min(position, len(truth.log)))
        disks = [truth.disks[voter] for voter in members.ids if voter in truth.disks]
        voters = [disk for disk in disks if disk.metadata.status is Status.VOTING]
        for quorum in combinations(voters, len(members.ids) // 2 + 1):
            self._judge(position, truth.chosen[position], quorum)

    def _judge(self, position: int, value: Value, quorum: Sequence[LogDisk]) -> None:
        if any(disk.floor.position > position for disk in quorum):
            return
        slots = [disk.slots[position] for disk in quorum if position in disk.slots]
        best = max(slots, key=lambda slot: (slot.learned, slot.number), default=None)
        is_known = best is not None and self.truth.value_of(best) == value
        if not is_known:
            self.require(False, [disk.node for disk in quorum], position, value, "but", best)


INVARIANTS: tuple[type[Invariant], ...] = (
    *OUTCOMES,
    OneCoordinatorPerNumber,
    PromisesHold,
    LearnedWasChosen,
    LogsBeginWhereTruncated,
    DurableBeforeVisible,
    FaultyIsTold,
    NewAboveReported,
    BarrierFirst,
    HoleSpanIsKept,
    VotersAreAdmitted,
    EveryQuorumKnows,
    QuorumsInForce,
    VotersComeAlone,
)
"""All invariants of the simulator."""
