"""Rules taken away, one at a time: the simulator must notice each.

A mutant replaces attributes of the shipped classes, as a careless change would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial, update_wrapper
from typing import Any

from msgspec import structs

from tests.sim.planting import Mutant, Patch, all_patched
from tidelog.model.cluster import Voter
from tidelog.replication.paxos import apply, fill
from tidelog.replication.paxos.apply import Verdict
from tidelog.replication.paxos.catchup import Catchup
from tidelog.replication.paxos.coordinator import LogCoordinator
from tidelog.replication.paxos.events import Action, Append, Applied, Persist, Send, Started, VotersFound
from tidelog.replication.paxos.fill import Fill, Settled
from tidelog.replication.paxos.journal import Journal
from tidelog.replication.paxos.messages import (
    PromiseRequest,
    PromiseResponse,
    Reply,
    WriteRequest,
    WriteResponse,
)
from tidelog.replication.paxos.numbers import NO_NUMBER, next_number
from tidelog.replication.paxos.proposals import Proposals
from tidelog.replication.paxos.proposer import Proposer
from tidelog.replication.paxos.recover import Fence, Founding
from tidelog.replication.paxos.replica import Replica
from tidelog.replication.paxos.state import NOP, UNKNOWN, Prefix, Slot, Status, StoredLog, Value
from tidelog.replication.paxos.term import Term
from tidelog.replication.paxos.voters import Membership, Phase, VoterSet
from tidelog.replication.quorum import Majority, Quorum, blocks, parts_of
from tidelog.sim.paxos.actions import WipeNode
from tidelog.sim.paxos.changes import Changes
from tidelog.sim.paxos.log_disk import LogDisk
from tidelog.sim.paxos.sim_node import SimNode
from tidelog.sim.paxos.simulation import Simulation
from tidelog.sim.paxos.story import Story
from tidelog.sim.paxos.voting import Voting, digest_of


def accept_does_not_raise_the_promise() -> list[Patch]:
    """Mesos' write rule."""

    def is_outdated(self: Replica, number: int, slot: Slot | None) -> bool:
        return number < self.metadata.promised

    return [(Replica, "_is_outdated", is_outdated)]


def promise_is_not_kept() -> list[Patch]:
    def is_outdated(self: Replica, number: int, slot: Slot | None) -> bool:
        return slot is not None and number < slot.number

    return [(Replica, "_is_outdated", is_outdated)]


def rejoin_without_fence() -> list[Patch]:
    """Mesos' recovery: the others are asked for what they hold, and promise nothing."""
    fences: set[int] = set()
    fence_init, promise = Fence.__init__, Replica.promise

    def init(self: Fence, number: int, *args: Any) -> None:
        fences.add(number)
        fence_init(self, number, *args)

    def report(self: Replica, sender: int, request: PromiseRequest) -> list[Action]:
        if request.number not in fences or self._refuses_to_vote():
            return promise(self, sender, request)
        slots = self._report(max(request.position, self.applied.position))
        return [Send(sender, PromiseResponse(Reply.ACCEPT, request.number, 0, self.applied.position, slots))]

    def close(self: Fence) -> list[Action]:
        return self._replica.change(structs.replace(self._replica.metadata, status=Status.VOTING))

    return [(Fence, "__init__", init), (Replica, "promise", report), (Fence, "_close", close)]


def fence_with_a_number_computed_locally() -> list[Patch]:
    """Larger than what a quorum of the others has promised, which is not all that was issued."""

    def fence_number(self: Story, node: SimNode) -> int:
        others = [other for other in self.sim.nodes.values() if other is not node and other.is_up]
        asked = [other.core.replica.metadata.promised for other in others][: self.sim.truth.quorum_size]
        return next_number(max(asked, default=0), node.node)

    return [(Story, "fence_number", fence_number)]


def rejoined_before_its_log_is_durable() -> list[Patch]:
    def advance(self: Fence) -> list[Action]:
        if self._end is None or self._is_closing or self._replica.applied.position < self._end:
            return []
        self._is_closing = True
        return self._close()

    return [(Fence, "_advance", advance)]


def no_void_rule() -> list[Patch]:
    return [(apply, "is_void", lambda prefix, value: False)]


def batches_count_behind_a_gap() -> list[Patch]:
    return [(apply, "is_behind_a_gap", lambda prefix, value: False)]


def batches_need_nothing_below() -> list[Patch]:
    """A coordinator whose batches count one by one."""
    append = LogCoordinator.append

    def one_by_one(self: LogCoordinator, event: Append) -> list[Action]:
        return append(self, structs.replace(event, is_in_order=False))

    return [(LogCoordinator, "append", one_by_one)]


def a_hole_breaks_nothing() -> list[Patch]:
    """A log counts as unbroken across a NOP."""
    step_over = apply._pass
    return [(apply, "_pass", lambda prefix, *, is_unbroken: step_over(prefix, is_unbroken=True))]


def no_barrier() -> list[Patch]:
    """Elected as soon as everything below is applied."""

    def on_quorum(self: LogCoordinator, end: int) -> list[Action]:
        self._barrier, self._next_position = end - 1, end
        return self._on_barrier() if self._replica.applied.position == end else []

    def on_applied(self: LogCoordinator, applied: Applied) -> list[Action]:
        Proposer.on_applied(self, applied)
        if self._barrier is None or applied.position < self._barrier:
            return []
        if applied.position == self._barrier:
            return [] if self.is_elected else self._on_barrier()
        if applied.value != self._own.pop(applied.position, None) or applied.verdict is apply.Verdict.VOID:
            return self.lose(self._replica.highest)
        return []

    return [(LogCoordinator, "_on_quorum", on_quorum), (LogCoordinator, "on_applied", on_applied)]


def faulty_of_a_minority_is_chosen() -> list[Patch]:
    """A fill takes one faulty slot with a name for a quorum's."""

    def is_chosen(self: Fill, position: int, number: int, value: Value, reported: dict[int, Slot]) -> bool:
        return number != NO_NUMBER and value != UNKNOWN and not self._term.names_new_voters(position, value)

    return [(Fill, "_is_chosen", is_chosen)]


def voters_without_a_word_deny() -> list[Patch]:
    """A voter whose vote is said to be lost counts as if it had accepted nothing."""

    def none_above(self: Fill, number: int, reported: dict[int, Slot]) -> list[int]:
        heard = [node for node in self._answers if node not in reported or reported[node].number <= number]
        return [*heard, *self._term.lost]

    return [(Fill, "_none_above", none_above)]


def only_a_quorum_can_deny() -> list[Patch]:
    """An election of an even number of voters waits for more than can prove that nothing is chosen."""
    return [(fill, "blocks", lambda nodes, quorum: quorum.is_met(nodes))]


def one_too_few_can_deny() -> list[Patch]:
    def nearly_blocks(nodes: Iterable[int], quorum: Quorum) -> bool:
        return any(blocks({*nodes, other}, quorum) for other in quorum.members)

    return [(fill, "blocks", nearly_blocks)]


def faulty_told_as_no_value() -> list[Patch]:
    report = Replica._report

    def report_sound(self: Replica, position: int) -> tuple[Slot, ...]:
        return tuple(slot for slot in report(self, position) if not slot.faulty)

    return [(Replica, "_report", report_sound)]


def damaged_replica_does_not_vote() -> list[Patch]:
    """Who cannot read all of its log takes no part until an operator has repaired it."""
    refuses = Replica._refuses_to_vote

    def refuses_with_damage(self: Replica) -> bool:
        return refuses(self) or any(slot.faulty for slot in self.slots.values())

    return [(Replica, "_refuses_to_vote", refuses_with_damage)]


def emptied_replica_votes() -> list[Patch]:
    """A disk is taken for what it was, though it has forgotten that."""
    return [(Replica, "_refuses_to_vote", lambda self: self.is_halted)]


def learned_is_overwritten() -> list[Patch]:
    def write_again(self: Replica, sender: int, request: WriteRequest, slot: Slot) -> list[Action]:
        if self._is_outdated(request.number, slot):
            return [Send(sender, WriteResponse(Reply.REJECT, request.number, request.position, self.highest))]
        store = self._store(Slot(request.position, request.number, request.value))
        answer = Send(sender, WriteResponse(Reply.ACCEPT, request.number, request.position))
        return [store, *self.journal.when_durable(answer)]

    return [(Replica, "_write_again", write_again)]


def number_reused_after_restart() -> list[Patch]:
    """What was issued is not stored."""
    init = Replica.__init__

    def forget(self: Replica, stored: StoredLog) -> None:
        init(self, structs.replace(stored, metadata=structs.replace(stored.metadata, issued=0)))

    return [(Replica, "__init__", forget)]


def _answered_at_once(kind: type[Any]) -> list[Patch]:
    when_durable = Journal.when_durable

    def at_once(self: Journal[Action], effect: Action) -> list[Action]:
        if isinstance(effect, Send) and isinstance(effect.message, kind):
            return [effect]
        return when_durable(self, effect)

    return [(Journal, "when_durable", at_once)]


def promise_answered_before_persisted() -> list[Patch]:
    return _answered_at_once(PromiseResponse)


def write_answered_before_persisted() -> list[Patch]:
    return _answered_at_once(WriteResponse)


def fill_replaces_a_ghost_by_nop() -> list[Patch]:
    """What less than a quorum of the answers holds is taken for not chosen."""
    decide = Fill._decide

    def without_ghosts(self: Fill, position: int, reported: dict[int, Slot]) -> Settled | None:
        settled = decide(self, position, reported)
        if settled is not None and not settled.is_learned and not self._term.quorum.is_met(reported):
            return Settled(position, NOP, False, True)
        return settled

    return [(Fill, "_decide", without_ghosts)]


def quorum_of_one_too_few() -> list[Patch]:
    def is_met(self: Majority, nodes: Any) -> bool:
        return len(set(nodes) & set(self.members)) >= max(1, self.size - 1)

    return [(Majority, "is_met", is_met)]


def goes_on_with_the_rivals_number() -> list[Patch]:
    """Mesos' coordinator after a rejected write."""
    on_write = Proposer.on_write

    def adopt(self: Proposer, sender: int, response: WriteResponse) -> list[Action]:
        if response.reply is Reply.REJECT and isinstance(self, LogCoordinator) and self.is_elected:
            self.number = self._proposals._number = response.highest
            return []
        return on_write(self, sender, response)

    return [(Proposer, "on_write", adopt)]


def floor_without_what_was_before() -> list[Patch]:
    """A tombstone as Mesos has it: where the log begins, and no more."""
    raise_floor = Replica._raise_floor

    def forget(self: Replica, floor: Prefix) -> list[Action]:
        return raise_floor(self, Prefix(floor.position))

    return [(Replica, "_raise_floor", forget)]


def floor_is_not_durable() -> list[Patch]:
    """The head of the log is deleted, and where it begins is not on disk yet."""
    write = LogDisk.write

    def write_and_delete(self: LogDisk, persist: Persist) -> None:
        write(self, persist)
        for record in persist.records:
            if isinstance(record, Prefix):
                self.slots = {p: slot for p, slot in self.slots.items() if p >= record.position}

    return [(LogDisk, "write", write_and_delete)]


def founders_are_not_compared() -> list[Patch]:
    """Mesos' auto-initialisation."""

    def may_start(self: Founding) -> bool:
        seen = self._seen.values()
        return len(self._seen) == len(self._members) and all(
            peer.status in {Status.EMPTY, Status.STARTING} for peer in seen
        )

    def may_vote(self: Founding, founders: object) -> bool:
        seen = self._seen.values()
        return len(self._seen) == len(self._members) and all(
            peer.status in {Status.STARTING, Status.VOTING} for peer in seen
        )

    return [(Founding, "_may_start", may_start), (Founding, "_may_vote", may_vote)]


# -- voters that change ----------------------------------------------------------------------------------------------


def candidate_does_not_copy_first() -> list[Patch]:
    """It writes above what others have learned, and learns that later: in it may be other voters."""

    def begin_to_write(self: Proposer) -> list[Action]:
        if self._fill.end is None or not self._fill.is_complete or self._may_write or self.is_lost:
            return []
        self._may_write = True
        actions: list[Action] = []
        for settled in self._settled:
            if self._term.names_new_voters(settled.position, settled.value):
                return [VotersFound(settled.position, settled.value), *self.lose(self.number)]
            if not settled.is_learned and settled.position >= self._replica.applied.position:
                actions += self._proposals.propose(settled.position, settled.value)
        return [*actions, *self._on_quorum(self._fill.end)]

    return [(Proposer, "_begin_to_write", begin_to_write), (Proposer, "_knows_voters", lambda self: True)]


def open_voters_are_ignored() -> list[Patch]:
    """What a quorum shows about voters is proposed again like anything else."""
    return [(Term, "names_new_voters", lambda self, position, value: False)]


def voters_chosen_by_the_old_alone() -> list[Patch]:
    """As in Raft's changes of a single server: no joined quorum."""

    def quorum(self: Membership) -> Quorum:
        return self.voters.majority

    return [(Membership, "quorum", quorum)]


def voters_chosen_by_the_new_alone() -> list[Patch]:
    def quorum(self: Membership) -> Quorum:
        change = self._change
        return change.voters.majority if change is not None and change.phase is not Phase.DRAINING else old(self)

    old = Membership.quorum
    return [(Membership, "quorum", quorum)]


def new_voters_decide_before_they_are_applied() -> list[Patch]:
    """Who finds them open goes by them, without the old."""
    on_found = Membership.on_found

    def take_over(self: Membership, position: int, value: Value, voters: VoterSet) -> bool:
        is_news = on_found(self, position, value, voters)
        if is_news:
            self.voters = voters
        return is_news

    return [(Membership, "on_found", take_over)]


def second_change_while_one_is_open() -> list[Patch]:
    """A leader that is still to be elected by old and new voters begins another, on top of the first."""
    join = Voting.join

    def join_twice(self: Voting, node: SimNode) -> None:
        assert isinstance(self._sim, Simulation)
        join(self, node)
        change = node.membership._change
        spare = next((m for m in self._sim.machines.values() if change and m.node not in change.voters.ids), None)
        if change is not None and spare is not None and spare.node >= change.voters.next_voter_id:
            voter = Voter(spare.node, spare.machine, spare.incarnation, "", 0)
            if voter.node_id not in [other.node_id for other in change.voters.voters]:
                twice = change._replace(voters=change.voters.with_change(add=voter))
                node.membership._change = twice
                self._sim.truth.voter_sets[digest_of(twice.voters)] = twice.voters
                self.enlist(spare)

    return [(Voting, "join", join_twice)]


def window_not_drained() -> list[Patch]:
    """New voters are proposed with clients' values in flight before and behind them."""
    append = Voting._append

    def append_among_others(self: Voting, node: SimNode, boot: int, voters: VoterSet) -> None:
        if node.is_alive(boot):
            for _ in range(2):
                _offer(self, node)
            append(self, node, boot, voters)
            _offer(self, node)

    return [
        (Voting, "_append", append_among_others),
        (LogCoordinator, "is_drained", property(lambda self: self.is_writing)),
        (LogCoordinator, "_refusal", lambda self: None),
    ]


def _offer(voting: Voting, node: SimNode) -> None:
    offered = voting._sim.truth.offered
    digest = b"among %d" % len(offered)
    offered.add(digest)
    voting._sim.step(node, Append(1, digest))


def window_not_drained_and_void_voters_take_effect() -> list[Patch]:
    """Void voters take effect. They are void only if something was open before them; so this is two mutants in one."""
    on_applied = Membership.on_applied

    def take_all(self: Membership, position: int, voters: VoterSet | None, verdict: Verdict) -> bool:
        return on_applied(self, position, voters, Verdict.APPLIED if voters is not None else verdict)

    return [*window_not_drained(), (Membership, "on_applied", take_all)]


def who_is_only_asked_must_tell() -> list[Patch]:
    """Nothing above a number: of that, all sets of voters who may be in force must convince, at any position."""
    return [(Term, "deciders", lambda self, position: parts_of(self.quorum))]


def old_voters_tell_for_the_new() -> list[Patch]:
    """The old must convince of that, and at positions where the new may be in force, too."""
    return [(Term, "deciders", lambda self, position: (self.in_force,))]


def either_set_tells_for_the_other() -> list[Patch]:
    """Old and new decide together where the new may be in force, or so it is believed: one of the sets may deny."""
    return [(Term, "deciders", lambda self, position: (self.quorum,))]


def voters_found_are_written_with_the_rest() -> list[Patch]:
    """They do not wait until what stands behind them is chosen."""
    return [(Proposals, "__bool__", lambda self: False)]


def voters_newer_than_the_log_on_disk() -> list[Patch]:
    """A node starts with the newest voters it ever went by, as if they were those below its log."""

    def start(self: Simulation, node: SimNode) -> None:
        node.start(node.membership.voters, -1)
        self.step(node, Started())

    return [(Simulation, "start", start)]


def only_the_first_payload_is_fetched() -> list[Patch]:
    """One that is lost everywhere holds up the others for ever."""
    return [
        (Catchup, "_turn_of", lambda self, peer: self._replica.faulty()[:1]),
        (Catchup, "_ask_whether", lambda self, peer: []),
    ]


def wiped_voter_keeps_its_id() -> list[Patch]:
    """The new disk of a voter is enlisted in the place of the lost one."""

    def wipe(self: Changes, node: SimNode, action: WipeNode) -> None:
        if node.is_up:
            self._sim.stop(node, "none")
            node.disk.wipe()
            self._sim.after(action.ticks, start_again, self, node)

    def start_again(self: Changes, node: SimNode) -> None:
        self._start(node)
        if node.is_up and node.is_enlisted:
            self._sim.voting.enlist(node)

    return [(Changes, "wipe", wipe)]


MUTANTS: tuple[Callable[[], list[Patch]], ...] = (
    accept_does_not_raise_the_promise,
    promise_is_not_kept,
    promise_answered_before_persisted,
    write_answered_before_persisted,
    number_reused_after_restart,
    quorum_of_one_too_few,
    learned_is_overwritten,
    fill_replaces_a_ghost_by_nop,
    faulty_of_a_minority_is_chosen,
    voters_without_a_word_deny,
    only_a_quorum_can_deny,
    one_too_few_can_deny,
    faulty_told_as_no_value,
    damaged_replica_does_not_vote,
    emptied_replica_votes,
    goes_on_with_the_rivals_number,
    no_void_rule,
    batches_count_behind_a_gap,
    batches_need_nothing_below,
    a_hole_breaks_nothing,
    no_barrier,
    floor_without_what_was_before,
    floor_is_not_durable,
    rejoin_without_fence,
    fence_with_a_number_computed_locally,
    rejoined_before_its_log_is_durable,
    founders_are_not_compared,
    candidate_does_not_copy_first,
    open_voters_are_ignored,
    voters_chosen_by_the_old_alone,
    voters_chosen_by_the_new_alone,
    new_voters_decide_before_they_are_applied,
    second_change_while_one_is_open,
    window_not_drained,
    window_not_drained_and_void_voters_take_effect,
    wiped_voter_keeps_its_id,
)


def mutated(mutant: Callable[[], list[Patch]]) -> AbstractContextManager[None]:
    return all_patched(mutant())


def as_mutant(taken_away: Callable[[], list[Patch]]) -> Mutant:
    """Returns a mutant for the simulator of clusters, of the same name."""
    mutant = partial(mutated, taken_away)
    update_wrapper(mutant, taken_away)
    return mutant
