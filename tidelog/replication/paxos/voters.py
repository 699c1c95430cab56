"""The voters of a log, and how they change without ever letting two groups decide.

A voter is a disk, not a machine: its id belongs to one node with one storage incarnation and is never given to another,
so a wiped disk is another voter, and the old voter never answers again. The voters in force are those of the newest
VOTERS value that is applied and not void; before the first, the founders of the log.

A change goes in four steps, each of which a crash may interrupt: drain, join, write, settle. `Membership` decides the
next step; the shell carries it out (`broker.consensus.voter_change`, which has the proof of each).
docs/replication-paxos.md ("Changing the voters") explains why a candidate that has missed several changes can do no
harm.

Mesos has no change of voters (MESOS-683). Raft's single-server changes need old and new majorities to overlap; joined
quorums (Raft's joint consensus) do not, so one step may also replace a voter by another.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import msgspec

from tidelog.model.cluster import Voter
from tidelog.replication.paxos.apply import Verdict
from tidelog.replication.paxos.events import Reconfigure, VotersFound
from tidelog.replication.paxos.numbers import LEARNER_BASE
from tidelog.replication.paxos.state import Value
from tidelog.replication.quorum import Joint, Majority, Quorum, Unanimous

VOTER_ID_MAX = 2**15 - 1
FORMAT = 1


class InvalidVoters(ValueError):
    """The voters are no valid set, or differ from the present set by more than one change. The message says what is
    wrong."""


class VoterSet(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The voters, in the order of their ids. Raises `InvalidVoters` if the set is not valid."""

    voters: tuple[Voter, ...]
    next_voter_id: int
    """The smallest id that no voter of this log has had."""

    def __post_init__(self) -> None:
        ids = [voter.voter_id for voter in self.voters]
        nodes = [voter.node_id for voter in self.voters]
        if not ids:
            raise InvalidVoters("a log needs at least one voter")
        if ids != sorted(set(ids)):
            raise InvalidVoters(f"voter ids must be distinct and in order, but are {ids}")
        if len(set(nodes)) < len(nodes):
            raise InvalidVoters(f"a node may have one voter only, but the nodes are {sorted(nodes)}")
        if min(nodes) < 0 or not (ids[0] >= 1 and ids[-1] < self.next_voter_id <= VOTER_ID_MAX + 1):
            raise InvalidVoters(f"voter ids must be from 1 to below {self.next_voter_id}, but are {ids}")

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(voter.voter_id for voter in self.voters)

    @property
    def majority(self) -> Majority:
        return Majority(self.ids)

    def find(self, node_id: int, incarnation: str) -> Voter | None:
        """Returns the voter with this node and storage incarnation; None if there is none."""
        return next(
            (voter for voter in self.voters if (voter.node_id, voter.incarnation) == (node_id, incarnation)), None
        )

    def with_change(self, *, add: Voter | None = None, remove: int | None = None) -> VoterSet:
        """Returns these voters with `add` added, with the voter of id `remove` removed, or with the one replaced by the
        other.

        Raises `InvalidVoters` if the result is no valid set, or the new voter's id may have been another's.
        """
        if remove is not None and remove not in self.ids:
            raise InvalidVoters(f"voter {remove} is not among {list(self.ids)}")
        remaining = tuple(voter for voter in self.voters if voter.voter_id != remove)
        if add is None:
            return VoterSet(remaining, self.next_voter_id)
        # An id stands for one disk. Given again, it would let a new disk answer for promises that the old one made.
        if add.voter_id < self.next_voter_id:
            raise InvalidVoters(f"voter id {add.voter_id} may have been another's; the next is {self.next_voter_id}")
        return VoterSet((*remaining, add), add.voter_id + 1)

    def check_step(self, to: VoterSet) -> None:
        """Raises `InvalidVoters` unless `to` differs by a single change: one voter added, removed or replaced.
        Addresses may change as well."""
        old, new = ({v.voter_id: (v.node_id, v.incarnation) for v in voters.voters} for voters in (self, to))
        added, removed = sorted(set(new) - set(old)), sorted(set(old) - set(new))
        # One in the place of another is one step: majorities of both sets decide, so they need not overlap.
        if max(len(added), len(removed)) > 1:
            raise InvalidVoters(f"voters change one at a time, but these add {added} and remove {removed}")
        if to == self:
            raise InvalidVoters(f"these are the voters already: {list(self.ids)}")
        if (added and added[0] < self.next_voter_id) or to.next_voter_id < self.next_voter_id:
            raise InvalidVoters(f"voter ids are not given again: a new one is {self.next_voter_id} or larger")
        if any(new[voter] != old[voter] for voter in set(new) & set(old)):
            raise InvalidVoters("a voter id stands for one disk of one node; another disk is another voter")


def encode_voters(voters: VoterSet) -> bytes:
    """Returns the canonical encoding of these voters (msgpack)."""
    return msgspec.msgpack.encode((FORMAT, voters))


def decode_voters(content: bytes) -> VoterSet:
    """Returns the voters encoded in `content`. Raises `InvalidVoters` for anything that `encode_voters` does not
    write."""
    try:
        version, voters = msgspec.msgpack.decode(content, type=tuple[int, VoterSet])
    # msgspec does not wrap the second one.
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidVoters(f"these bytes are no set of voters: {error}") from error
    # Equal voters are equal bytes: the digest in a VOTERS value stands for them.
    if version != FORMAT or encode_voters(voters) != content:
        raise InvalidVoters(f"these bytes are no set of voters in format {FORMAT}")
    return voters


def learner_id(node_id: int) -> int:
    """Returns the Paxos engine's id for a node whose disk never was a voter's."""
    return LEARNER_BASE + node_id


class Phase(Enum):
    """The step that a change of voters has reached at the leader that makes it."""

    DRAINING = "draining"
    JOINING = "joining"
    WRITING = "writing"


class _Change(NamedTuple):
    voters: VoterSet
    phase: Phase
    number: int
    """The proposal number of the term in which this phase of the change has to happen."""


class _OpenVoters(NamedTuple):
    position: int
    value: Value
    voters: VoterSet


class Membership:
    """The voters of a log as one node knows them: decides the quorum, and the next step of a change. Pure.

    The shell reports the values that its engine applies and finds, in order, and after each method that returns True
    gives `reconfigure()` to the engine. A leader makes a change with `begin`, `join` and `write`, each as soon as it is
    allowed, and then campaigns again under the voters that `on_applied` took over, if it is one of them.
    """

    def __init__(self, voters: VoterSet, position: int = -1, *, since: int = 0) -> None:
        """Begins with the voters below the log's floor (first position), from a snapshot at or below it, or with the
        log's founders.

        If an operator has let the log continue without its majority, only VOTERS values count that were first proposed
        under number `since` or a larger one, and until there is one, all remaining voters have to agree on each
        decision.
        """
        # Not with newer voters, whatever a broker may remember elsewhere. What is learned is written lazily, so a
        # majority of new voters may all have forgotten the VOTERS that name them, and would decide there anew.
        self.since = since
        self.voters = voters
        """The voters in force: those of the newest VOTERS value applied here."""
        self.position = position
        """The log position of the VOTERS value that put `voters` in force; -1 if no such value did."""
        self._open_voters: tuple[_OpenVoters, ...] = ()
        self._change: _Change | None = None
        self._unread = -1
        """The newest position of an applied VOTERS value whose content is not known here; -1 if there is none."""

    # -- who decides -------------------------------------------------------------------------------------------------

    @property
    def is_union(self) -> bool:
        """True if an operator let the log continue without its majority, until the remaining voters have had a VOTERS
        value applied."""
        return self.since > 0 and self.position < 0

    @property
    def is_known(self) -> bool:
        """False while the voters in force are not known here, for lack of a payload or a snapshot; then this node must
        not campaign."""
        return self._unread <= self.position

    @property
    def phase(self) -> Phase | None:
        """Returns the phase of the change that this leader makes; None if it makes none."""
        return None if self._change is None else self._change.phase

    @property
    def changing_under(self) -> int:
        """Returns the proposal number on which this leader's present change depends; 0 if it makes none."""
        return 0 if self._change is None else self._change.number

    @property
    def is_settled(self) -> bool:
        """Returns True if no change of voters is known to be open."""
        return self.is_known and self._change is None and not self._open_voters and not self.is_union

    def quorum(self) -> Quorum:
        """Returns the quorum that a candidate here needs now: majorities of the voters in force, and of all voters that
        may be in force."""
        if self.is_union:
            return Unanimous(self.voters.ids)
        sets = [self.voters]
        further_sets = [open_voters.voters for open_voters in self._open_voters]
        # While the window drains, the old voters still decide alone. From joining on, the new ones may come to decide.
        if self._change is not None and self._change.phase is not Phase.DRAINING:
            further_sets.append(self._change.voters)
        for voters in further_sets:
            # A change of addresses alone leaves the same majority.
            if voters.ids not in [voter_set.ids for voter_set in sets]:
                sets.append(voters)
        return sets[0].majority if len(sets) == 1 else Joint([voters.majority for voters in sets])

    def reconfigure(self, me: int) -> Reconfigure:
        """Returns the event that makes the engine use these voters, with the engine id `me`."""
        settling = tuple(VotersFound(open_voters.position, open_voters.value) for open_voters in self._open_voters)
        in_force = self.quorum() if self.is_union else self.voters.majority
        return Reconfigure(me, self.quorum(), in_force, self.position, settling)

    def voter_of(self, node_id: int, incarnation: str) -> Voter | None:
        """Returns the voter of this disk, in the set in force or in one that may follow; None if it is in none."""
        sets = [self.voters, *(open_voters.voters for open_voters in self._open_voters)]
        if self._change is not None:
            sets.append(self._change.voters)
        matches = [voters.find(node_id, incarnation) for voters in sets]
        return next((voter for voter in matches if voter is not None), None)

    def is_used_up(self, voter_id: int, node_id: int, incarnation: str) -> bool:
        """Returns True if the id was given out and this disk's voter is neither in force nor about to be: the id has no
        vote any more."""
        return voter_id < self.voters.next_voter_id and self.voter_of(node_id, incarnation) is None

    # -- what the log says -------------------------------------------------------------------------------------------

    def on_applied(self, position: int, voters: VoterSet | None, verdict: Verdict) -> bool:
        """Records an applied position, with its voters if the value is VOTERS. Returns True if the quorum changes with
        it.

        It is called again for a VOTERS value whose payload was missing and has arrived.
        """
        open_before = self._open_voters
        # What is applied there is settled, whether these voters or another value.
        self._open_voters = tuple(open_voters for open_voters in open_before if open_voters.position > position)
        # A payload that comes late may be of voters that newer ones have followed already.
        if voters is None or verdict is not Verdict.APPLIED or position <= self.position:
            return self._open_voters != open_before
        self.voters, self.position, self._change = voters, position, None
        return True

    def on_unread(self, position: int) -> None:
        """Records an applied VOTERS value whose payload is not here. Until `on_applied` gives its voters, this node
        must not campaign."""
        self._unread = max(self._unread, position)

    def on_jumped(self, begin: int) -> None:
        """Records that the log continues at the floor (first position) of a peer's log. There may have been VOTERS
        values below, so this node must not campaign until `on_snapshot`."""
        self._open_voters = tuple(open_voters for open_voters in self._open_voters if open_voters.position >= begin)
        self._unread = max(self._unread, begin - 1)

    def on_snapshot(self, voters: VoterSet, position: int, end: int) -> bool:
        """Takes the voters of a snapshot of everything below `end`, whose VOTERS value is at `position` (-1 for the
        founders). Returns True if the quorum changes with them."""
        # A snapshot that ends before the unread VOTERS does not say who they are.
        if self._unread < end:
            self._unread = -1
        if position <= self.position:
            return False
        self.voters, self.position, self._change = voters, position, None
        return True

    def on_found(self, position: int, value: Value, voters: VoterSet) -> bool:
        """Records a VOTERS value that may be chosen, because of which an election attempt has ended. Returns True if
        the quorum changes with it."""
        if position <= self.position or any(open_voters.value == value for open_voters in self._open_voters):
            return False
        # The next attempt asks them besides those in force, since they may be chosen; not instead, as they may not.
        self._open_voters = (*self._open_voters, _OpenVoters(position, value, voters))
        return True

    # -- a change, by the leader -------------------------------------------------------------------------------------

    def begin(self, voters: VoterSet, number: int) -> None:
        """Begins a change to these voters, by the leader elected under `number`, which accepts no more values from now
        on.

        Raises `InvalidVoters` if another change is open, or these differ by more than one voter from those in force.
        """
        # One change at a time: a second one on top would be decided by voters that are not in force yet.
        if not self.is_settled:
            raise InvalidVoters("another change of the voters is not settled yet; try again when it is")
        self.voters.check_step(voters)
        self._change = _Change(voters, Phase.DRAINING, number)

    def join(self, number: int) -> VoterSet:
        """Moves the change, once nothing is in flight, to the leader's election by old and new voters under `number`.
        Returns the new voters."""
        assert self._change is not None and self._change.phase is Phase.DRAINING
        self._change = _Change(self._change.voters, Phase.JOINING, number)
        return self._change.voters

    def write(self, number: int) -> VoterSet | None:
        """Returns the voters that the leader elected under `number` has to append now; None if that election was not
        for a change of voters."""
        change = self._change
        # Only a term that both sets have elected may write them: else the new voters could decide unaware of values
        # that the old have chosen.
        if change is None or change.phase is not Phase.JOINING or change.number != number:
            return None
        self._change = _Change(change.voters, Phase.WRITING, number)
        return change.voters

    def on_lost(self, number: int) -> bool:
        """Records that the term or attempt under `number` has ended. Returns True if a change of voters ended with it
        and the quorum changes."""
        change = self._change
        if change is None or change.number != number:
            return False
        # If its VOTERS were written, some later candidate finds them; if not, the change is begun anew.
        self._change = None
        return change.phase is not Phase.DRAINING
