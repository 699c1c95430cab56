"""What really happened: the simulator's own account, made from disks and from what nodes tell their clients.

Kept apart from the code under test, and as plain as possible: the void rule, for one, is written here a second time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tidelog.replication.paxos.apply import Verdict
from tidelog.replication.paxos.events import Applied
from tidelog.replication.paxos.numbers import NO_NUMBER
from tidelog.replication.paxos.state import Kind, Metadata, Prefix, Record, Slot, Value
from tidelog.sim.ring1.log_disk import LogDisk


class Violation(AssertionError):
    """An invariant does not hold. Starts with the invariant's name."""


class Truth:
    """Of one run."""

    def __init__(self, quorum_size: int) -> None:
        self.quorum_size = quorum_size
        self.counters: Counter[str] = Counter()
        self.accepted: dict[tuple[int, int], tuple[Value, set[int]]] = {}
        """By position and number: the value, and the nodes that ever held it on disk."""
        self.chosen: dict[int, Value] = {}
        self.barriers: set[int] = set()
        """The numbers of coordinators whose barrier is chosen."""
        self.offered: set[bytes] = set()
        """Digests of what clients sent."""
        self.acked: dict[int, Value] = {}
        self.log: list[tuple[Value, Verdict]] = []
        """What was applied, by position, as the first who did so told it."""
        self.prefixes: list[Prefix] = [Prefix()]
        """Before each position of `log`, and after the last."""
        self.floors: set[int] = {0}
        """Where logs may begin: what was truncated to."""
        self.issued = NO_NUMBER
        """The largest number anybody used."""
        self.disks: Sequence[LogDisk] = ()
        """As they are."""
        self.voted: dict[int, int] = {}
        """By node: the largest number it ever promised or accepted, on any of its disks."""

    def on_durable(self, node: int, record: Record) -> None:
        """Takes note of what reached a disk."""
        if isinstance(record, Metadata):
            self.voted[node] = max(self.voted.get(node, NO_NUMBER), record.promised)
            self.issued = max(self.issued, record.issued)
        elif isinstance(record, Slot) and not record.learned and not record.faulty:
            self._accept(node, record)

    def _accept(self, node: int, slot: Slot) -> None:
        self.voted[node] = max(self.voted.get(node, NO_NUMBER), slot.number)
        value, nodes = self.accepted.setdefault((slot.position, slot.number), (slot.value, set()))
        if value != slot.value:
            raise Violation(f"one value per number: position {slot.position}, {value} and {slot.value}")
        nodes.add(node)
        if len(nodes) >= self.quorum_size:
            if value.kind is Kind.BARRIER:
                self.barriers.add(value.birth)
            chosen = self.chosen.setdefault(slot.position, value)
            if chosen != value:
                raise Violation(f"one value is chosen: position {slot.position}, {chosen} and {value}")

    def on_applied(self, applied: Applied) -> None:
        """Extends the log, if this is the first time that the position is applied."""
        position, value = applied.position, applied.value
        if position != len(self.log):
            return
        prefix = self.prefixes[-1]
        verdict, epoch, next_offset = Verdict.APPLIED, value.birth, prefix.next_offset
        if value.kind is Kind.NOP:
            verdict, epoch = Verdict.NOTHING, prefix.epoch
        elif value.birth < prefix.epoch:
            verdict, epoch = Verdict.VOID, prefix.epoch
        elif value.kind is Kind.APPEND:
            if value.base_offset < next_offset:
                raise Violation(f"order holds: position {position} takes offsets again, {value} after {prefix}")
            next_offset = value.base_offset + value.count
        elif value.kind is Kind.TRUNCATE:
            self.floors.add(value.begin)
        self.log.append((value, verdict))
        self.prefixes.append(Prefix(position + 1, epoch, next_offset))
