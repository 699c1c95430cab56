"""The simulator's own account of a run, made from disks and from what nodes tell their clients.

Kept apart from the code under test, and as plain as possible: the void rule, for one, is written here a second time.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from tidelog.replication.paxos.apply import Verdict
from tidelog.replication.paxos.events import Applied
from tidelog.replication.paxos.numbers import NO_NUMBER
from tidelog.replication.paxos.state import UNKNOWN, Kind, Metadata, Prefix, Record, Slot, Value
from tidelog.replication.paxos.voters import Membership, VoterSet
from tidelog.replication.quorum import parts_of
from tidelog.sim.paxos.log_disk import LogDisk

SPARES_MAX = 3


class Violation(AssertionError):
    """An invariant does not hold. Starts with the invariant's name."""


class Attempt(NamedTuple):
    """Whom a number asks."""

    groups: tuple[tuple[int, ...], ...]
    """A majority of each."""
    voters_position: int
    """The position of the first group's VOTERS value."""


class Truth:
    """The truth of one run."""

    def __init__(self, founders: VoterSet) -> None:
        self.founders = founders
        self.quorum_size = len(founders.voters) // 2 + 1
        """The size of a quorum of the founders: of all logs whose voters stay."""
        self.counters: Counter[str] = Counter()
        self.accepted: dict[tuple[int, int], tuple[Value, set[int]]] = {}
        """The value, and the nodes that ever held it on disk, by position and number."""
        self.chosen: dict[int, Value] = {}
        self.barriers: set[int] = set()
        """The numbers of coordinators whose barrier is chosen."""
        self.offered: set[bytes] = set()
        """Digests of what clients sent."""
        self.acked: dict[int, Value] = {}
        self.log: list[tuple[Value, Verdict]] = []
        """The applied values by position, as the first node to apply them told them."""
        self.prefixes: list[Prefix] = [Prefix()]
        """Before each position of `log`, and after the last."""
        self.floors: set[int] = {0}
        """The positions where logs may begin, since they were truncated to them."""
        self.issued = NO_NUMBER
        """The largest number anybody used."""
        self.disks: dict[int, LogDisk] = {}
        """The disks as they are, by voter id; without those that are lost."""
        self.voted: dict[int, int] = {}
        """The largest number that each node ever promised or accepted, on any of its disks."""
        self.attempts: dict[int, Attempt] = {}
        """The attempts to lead, by number."""
        self.chosen_by: dict[int, list[int]] = {}
        """The numbers under which a position's value was chosen, in the order in which that happened."""
        self.voter_sets: dict[bytes, VoterSet] = {}
        """The voter sets that leaders wanted to change to, by digest: the voters' ids, which no other set of a run has.
        """
        self.voters: list[tuple[int, VoterSet]] = [(-1, founders)]
        """In force, one after the other, each from behind its position on."""
        self.joined: list[tuple[int, VoterSet]] = []
        """Changes that may still happen, with the number of the leader who wanted them."""
        self.settled_position = -1
        """The position of the newest voters of whom a majority is known to know that it decides; older voters are not
        needed.
        """
        self._next_id = founders.next_voter_id + SPARES_MAX

    # -- who decides -------------------------------------------------------------------------------------------------

    def draw_id(self) -> int:
        """A voter id that nobody had."""
        self._next_id += 1
        return self._next_id - 1

    def voters_at(self, position: int) -> tuple[int, VoterSet]:
        """The voters in force at a position, and where their value stands."""
        return next(item for item in reversed(self.voters) if item[0] < position or item[0] < 0)

    def needed_voters(self) -> list[VoterSet]:
        """A majority of each must be there, or nobody can ask for progress."""
        in_force = [voters for position, voters in self.voters if position >= self.settled_position]
        return [*in_force, *(voters for _, voters in self.joined)]

    def on_attempt(self, number: int, membership: Membership) -> None:
        """A node begins to act under a number, with a quorum that it takes for the right one."""
        quorum = membership.quorum()
        self.attempts[number] = Attempt(tuple(part.members for part in parts_of(quorum)), membership.position)

    def on_elected(self, number: int) -> None:
        """A quorum of the voters that elected it know, on disk, that they are."""
        self.settled_position = max(self.settled_position, self.attempts[number].voters_position)
        self.joined = [item for item in self.joined if item[0] >= number]

    def is_quorum(self, number: int, nodes: set[int]) -> bool:
        """Counted here once more: more than half of each group that was asked."""
        return all(2 * len(nodes.intersection(group)) > len(group) for group in self.attempts[number].groups)

    def _is_settled(self, position: int, nodes: set[int]) -> bool:
        """True if a majority of the voters in force at the position has accepted. Its proposer may have asked more, for
        voters that it wants to follow them; but no later one settles the position without seeing this."""
        if position > len(self.log):
            return False  # nobody can say yet who is in force there
        _, in_force = self.voters_at(position)
        return 2 * len(nodes.intersection(in_force.ids)) > len(in_force.ids)

    def value_of(self, slot: Slot) -> Value:
        """Returns the value that a slot stands for, if its disk has lost that."""
        if slot.value != UNKNOWN or (slot.position, slot.number) not in self.accepted:
            return slot.value
        return self.accepted[slot.position, slot.number][0]

    # -- what happens ------------------------------------------------------------------------------------------------

    def on_durable(self, node: int, record: Record) -> None:
        """Takes note of what reached a disk."""
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
        """Extends the log, if this is the first time that the position is applied."""
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
        self.log.append((value, verdict))
        unbroken_from = self._unbroken_from(value, verdict)
        self.prefixes.append(Prefix(position + 1, epoch, next_offset, start_offset, unbroken_from))

    def _is_behind_a_gap(self, value: Value) -> bool:
        """Looked up here from the beginning: does anything but its leader's stand where it needs the log unbroken?"""
        needed = self.log[value.begin :] if value.kind is Kind.APPEND and value.begin else []
        return not all(
            _is_given_up(below) or (verdict is Verdict.APPLIED and below.birth == value.birth)
            for below, verdict in needed
        )

    def _unbroken_from(self, value: Value, verdict: Verdict) -> int:
        prefix = self.prefixes[-1]
        if verdict is not Verdict.APPLIED:
            return prefix.unbroken_from if _is_given_up(value) else prefix.position + 1
        return prefix.unbroken_from if value.birth == prefix.epoch else prefix.position


def _is_given_up(value: Value) -> bool:
    return value.kind is Kind.NOP and value.begin > 0
