"""The simulator's own account of a run, derived from disks and from what nodes answer to clients.

It shares no code with the code under test and is as simple as possible; the rule for void values, for example, is
implemented here a second time.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from tidelog.replication.paxos.apply import Verdict
from tidelog.replication.paxos.events import Applied
from tidelog.replication.paxos.numbers import NO_NUMBER
from tidelog.replication.paxos.releases import EVERY_KEY
from tidelog.replication.paxos.state import UNKNOWN, Kind, Metadata, Prefix, Record, Slot, Value
from tidelog.replication.paxos.voters import Membership, VoterSet
from tidelog.replication.quorum import parts_of
from tidelog.sim.paxos.log_disk import LogDisk

SPARES_MAX = 3
NO_KEY = -2
"""Stands for any batch, whatever its keys are, in `Truth.shown`."""


class Violation(AssertionError):
    """An invariant does not hold. The message starts with the invariant's name."""


class Attempt(NamedTuple):
    """The voters that an election under one ballot asks."""

    groups: tuple[tuple[int, ...], ...]
    """Groups of voter ids. The quorum has a majority of each."""
    voters_position: int
    """Position of the value that put the first group into force."""


class Truth:
    """The account of one run: accepted, chosen, applied and acknowledged values, and the voters in force."""

    def __init__(self, founders: VoterSet) -> None:
        self.founders = founders
        self.quorum_size = len(founders.voters) // 2 + 1
        """Size of a quorum of the founding voters; valid throughout in a fixed group."""
        self.counters: Counter[str] = Counter()
        self.accepted: dict[tuple[int, int], tuple[Value, set[int]]] = {}
        """Accepted value, and the nodes that ever had it on disk, by position and ballot."""
        self.chosen: dict[int, Value] = {}
        self.barriers: set[int] = set()
        """Ballots of coordinators whose barrier (their first value) is chosen."""
        self.offered: set[bytes] = set()
        """Digests of the batches that clients sent."""
        self.keys: dict[bytes, frozenset[int]] = {}
        """Keys of the batches that clients sent to a log that is ordered by key, by digest."""
        self.shown: dict[int, int] = {}
        """Position of the last value with each key that could be read anywhere."""
        self._readable: set[int] = set()
        """Positions of values that could be read anywhere."""
        self.acked: dict[int, Value] = {}
        self.log: list[tuple[Value, Verdict]] = []
        """Applied values with their verdicts (applied, void, or nothing to apply), by position, as reported by the
        first node that applied them."""
        self.prefixes: list[Prefix] = [Prefix()]
        """State of the log before each position of `log`, and after the last."""
        self.floors: set[int] = {0}
        """Positions at which logs may begin, because a truncation to them was applied."""
        self.issued = NO_NUMBER
        """Largest ballot that was ever issued."""
        self.disks: dict[int, LogDisk] = {}
        """Current disks by voter id, without those that are lost."""
        self.voted: dict[int, int] = {}
        """Largest ballot that each node ever promised or accepted, on any of its disks."""
        self.attempts: dict[int, Attempt] = {}
        """Attempts to lead, by ballot."""
        self.chosen_by: dict[int, list[int]] = {}
        """Ballots under which the value of a position was chosen, in the order in which that happened."""
        self.voter_sets: dict[bytes, VoterSet] = {}
        """Voter sets that leaders have proposed, by digest. The digest consists of the voters' ids, which are unique to
        a set in a run."""
        self.voters: list[tuple[int, VoterSet]] = [(-1, founders)]
        """Voter sets in force, oldest first. Each is valid for the positions after its own."""
        self.joined: list[tuple[int, VoterSet]] = []
        """Changes of voters that may still happen, with the ballot of the leader that proposed them."""
        self.settled_position = -1
        """Position of the newest voter set of which a majority is known to know, on disk, that it is in force. Older
        voters are not needed any more."""
        self._next_id = founders.next_voter_id + SPARES_MAX

    # -- who decides -------------------------------------------------------------------------------------------------

    def draw_id(self) -> int:
        """Returns a voter id that was never used."""
        self._next_id += 1
        return self._next_id - 1

    def voters_at(self, position: int) -> tuple[int, VoterSet]:
        """Returns the voters in force at a position, and the position of the value that put them into force."""
        return next(item for item in reversed(self.voters) if item[0] < position or item[0] < 0)

    def needed_voters(self) -> list[VoterSet]:
        """Returns the voter sets of which a majority must run before progress can be expected."""
        in_force = [voters for position, voters in self.voters if position >= self.settled_position]
        return [*in_force, *(voters for _, voters in self.joined)]

    def on_attempt(self, number: int, membership: Membership) -> None:
        """Records that a node begins an election or a rejoin under a ballot, with the quorum that it believes is
        right."""
        quorum = membership.quorum()
        self.attempts[number] = Attempt(tuple(part.members for part in parts_of(quorum)), membership.position)

    def on_elected(self, number: int) -> None:
        """Records an election: a quorum of its voters knows, on disk, that they are in force."""
        self.settled_position = max(self.settled_position, self.attempts[number].voters_position)
        self.joined = [item for item in self.joined if item[0] >= number]

    def is_quorum(self, number: int, nodes: set[int]) -> bool:
        """Returns True if the nodes are a majority of each group that the attempt asks. Counted here independently of
        the code under test."""
        return all(2 * len(nodes.intersection(group)) > len(group) for group in self.attempts[number].groups)

    def _is_settled(self, position: int, nodes: set[int]) -> bool:
        """Returns True if these nodes are a majority of the voters in force at the position. The proposer may need
        more, if its proposal changes the voters; but no later election misses a value that this majority has
        accepted."""
        if position > len(self.log):
            return False  # nobody can say yet who is in force there
        _, in_force = self.voters_at(position)
        return 2 * len(nodes.intersection(in_force.ids)) > len(in_force.ids)

    def value_of(self, slot: Slot) -> Value:
        """Returns the value of a slot, also if its disk has lost which value that was."""
        if slot.value != UNKNOWN or (slot.position, slot.number) not in self.accepted:
            return slot.value
        return self.accepted[slot.position, slot.number][0]

    # -- what happens ------------------------------------------------------------------------------------------------

    def on_durable(self, node: int, record: Record) -> None:
        """Records that a record became durable. Raises `Violation` if two values are accepted under one ballot or
        chosen for one position."""
        if isinstance(record, Metadata):
            self.voted[node] = max(self.voted.get(node, NO_NUMBER), record.promised)
            self.issued = max(self.issued, record.issued)
        elif isinstance(record, Slot) and not record.learned:
            self._accept(node, record)  # also if a crash tore its payload: the number stands, and so does the name

    def _accept(self, node: int, slot: Slot) -> None:
        self.voted[node] = max(self.voted.get(node, NO_NUMBER), slot.number)
        value, nodes = self.accepted.setdefault((slot.position, slot.number), (slot.value, set()))
        if value != slot.value:
            raise Violation(f"one value per number: position {slot.position}, {value} and {slot.value}")
        nodes.add(node)
        is_quorum = self.is_quorum(slot.number, nodes)
        if is_quorum and value.kind is Kind.BARRIER:
            self.barriers.add(value.birth)
        if is_quorum or self._is_settled(slot.position, nodes):
            chosen = self.chosen.setdefault(slot.position, value)
            numbers = self.chosen_by.setdefault(slot.position, [])
            if slot.number not in numbers:
                numbers.append(slot.number)
            if chosen != value:
                raise Violation(f"one value is chosen: position {slot.position}, {chosen} and {value}")

    def on_applied(self, applied: Applied) -> None:
        """Extends the log, if the value is the first to be applied at its position. Raises `Violation` if offsets are
        given out twice."""
        position, value = applied.position, applied.value
        if position != len(self.log):
            return
        prefix = self.prefixes[-1]
        verdict, epoch = Verdict.APPLIED, value.birth
        next_offset, start_offset = prefix.next_offset, prefix.start_offset
        if value.kind is Kind.NOP:
            verdict, epoch = Verdict.NOTHING, prefix.epoch
        elif value.birth < prefix.epoch or self._is_behind_a_gap(value):
            verdict, epoch = Verdict.VOID, prefix.epoch
        elif value.count:
            if value.base_offset < next_offset:
                raise Violation(f"order holds: position {position} takes offsets again, {value} after {prefix}")
            next_offset = value.base_offset + value.count
        elif value.kind is Kind.TRUNCATE:
            self.floors.add(value.begin)
        elif value.kind is Kind.DELETE:
            start_offset = max(start_offset, value.base_offset)
        elif value.kind is Kind.VOTERS:
            self.voters.append((position, self.voter_sets[value.digest]))
        if verdict is Verdict.APPLIED:
            self.show(position, value)
        self.log.append((value, verdict))
        unbroken_from = self._unbroken_from(value, verdict)
        self.prefixes.append(
            Prefix(position + 1, epoch, next_offset, start_offset, unbroken_from, self._lapsed(value, verdict))
        )

    def show(self, position: int, value: Value) -> None:
        """Records that a value can be read. Raises `Violation` if a later value with one of its keys could be read
        before."""
        if position in self._readable:
            return
        self._readable.add(position)
        keys = self.keys.get(value.digest)
        if keys is None:
            return
        # The batches that conflict with all have a key that the others do not name.
        for key in self.shown if EVERY_KEY in keys else (*keys, EVERY_KEY):
            if self.shown.get(key, -1) > position:
                raise Violation(f"keys are read in order: {key} at {self.shown[key]} before {position}")
        self.shown.update(dict.fromkeys((*keys, NO_KEY), position))

    def _is_behind_a_gap(self, value: Value) -> bool:
        """Returns True if a batch has no effect because a value before it is missing: each position that it needs must
        have a value of the same leader that was applied. Positions given up by an operator are left out."""
        return not all(self.is_in_force(position, value.birth) for position in self._needed(value))

    def _needed(self, value: Value) -> list[int]:
        position = len(self.log)
        if value.kind is not Kind.APPEND or not value.begin:
            return []
        if value.begin < 1 << 62:
            return list(range(value.begin, position))
        digits = f"{value.begin - (1 << 62):060b}"
        return [position - int(digits[at : at + 12], 2) for at in range(0, 60, 12) if int(digits[at : at + 12], 2)]

    def is_in_force(self, position: int, birth: int) -> bool:
        """Returns True if a value of this leader was applied with effect at a position, or an operator gave it up."""
        value, verdict = self.log[position]
        return _is_given_up(value) or (verdict is Verdict.APPLIED and value.birth == birth)

    def _lapsed(self, value: Value, verdict: Verdict) -> tuple[int, ...]:
        prefix = self.prefixes[-1]
        if verdict is Verdict.APPLIED:
            return prefix.lapsed if value.birth == prefix.epoch else ()
        return prefix.lapsed if _is_given_up(value) else (*prefix.lapsed, prefix.position)

    def _unbroken_from(self, value: Value, verdict: Verdict) -> int:
        prefix = self.prefixes[-1]
        if verdict is not Verdict.APPLIED:
            return prefix.unbroken_from if _is_given_up(value) else prefix.position + 1
        return prefix.unbroken_from if value.birth == prefix.epoch else prefix.position


def _is_given_up(value: Value) -> bool:
    return value.kind is Kind.NOP and value.begin > 0
