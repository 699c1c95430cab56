"""The true metadata log of one run, as seen from outside, and every rule that it must obey.

Whatever a broker applies, becomes or answers is reported here first, and each rule (`Rule`, an object with a name)
checks it at once, so that a violation is found at the event that caused it. The truth applies each record itself, once,
when the first broker does: brokers' images are compared with its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import xxhash

from tidelog.controller.apply import apply, with_voters
from tidelog.controller.records import BrokerRegistered, MetadataRecord, encode_record
from tidelog.model.cluster import ClusterImage, Voter
from tidelog.replication.paxos.voters import VoterSet

VIOLATIONS_MAX = 20


@dataclass(frozen=True, slots=True)
class Entry:
    """Entry of the metadata log at one position; `offset` is that of its first record."""

    offset: int
    records: tuple[MetadataRecord, ...] = ()
    voters: VoterSet | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """A metadata record when it is applied for the first time, with the images before and after."""

    offset: int
    record: MetadataRecord
    before: ClusterImage
    after: ClusterImage


class Rule:
    """A rule that must always hold. Each method yields what is wrong with an event; by default nothing."""

    name = ""

    def applied(self, truth: Truth, step: Step) -> Iterator[str]:
        """Judges a record that is applied for the first time."""
        yield from ()

    def settled(self, truth: Truth) -> Iterator[str]:
        """Judges the state after all records of an entry are applied."""
        yield from ()

    def changed(self, truth: Truth, before: tuple[Voter, ...], after: tuple[Voter, ...]) -> Iterator[str]:
        """Judges a change of the voter set in force."""
        yield from ()


@dataclass(slots=True, eq=False)
class Truth:
    """True metadata log of one run, with its rules, counters and violations."""

    rules: Sequence[Rule]
    clock: Callable[[], float] = lambda: 0.0
    """Function that returns the virtual time in seconds."""
    log: dict[int, Entry] = field(default_factory=dict)
    """Entry that was first applied at each position."""
    records: dict[int, MetadataRecord] = field(default_factory=dict)
    """The records by offset."""
    image: ClusterImage = field(default_factory=lambda: ClusterImage(""))
    """Image after all records."""
    images: dict[int, list[ClusterImage]] = field(default_factory=dict)
    """The images by number of records applied; several, if voters changed in between."""
    voter_sets: list[tuple[Voter, ...]] = field(default_factory=list)
    """Voter sets in the order in which they came into force."""
    storages: dict[int, list[str]] = field(default_factory=dict)
    """Ids of the disks that each node registered with, by node."""
    counters: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    hash: xxhash.xxh3_64 = field(default_factory=xxhash.xxh3_64)
    events: list[str] = field(default_factory=list)
    """Trace of the run: all noted events, printed for a failing run."""

    # -- what brokers do ---------------------------------------------------------------------------------------------

    def deliver(self, node: int, position: int, entry: Entry) -> None:
        """Notes that a broker applies an entry, or skips an empty one; checks that it is the same as on other
        brokers."""
        self.note("delivers", node, position)
        logged = self.log.get(position)
        if logged is None:
            self.log[position] = entry
            self._take_in(entry)
        elif logged != entry:
            self.violate("one log", f"node {node} applies {entry} at position {position}, where others have {logged}")

    def _take_in(self, entry: Entry) -> None:
        if entry.voters is not None:
            before, after = self.image.voters, entry.voters.voters
            self.image = with_voters(self.image, after, entry.voters.next_voter_id)
            self.voter_sets.append(after)
            self.note("voters", *(f"{voter.voter_id}={voter.node_id}" for voter in after))
            self._judge(rule.changed(self, before, after) for rule in self.rules)
        for i, record in enumerate(entry.records):
            self._apply(entry.offset + i, record)
        self.images.setdefault(self.image.position, []).append(self.image)
        self._judge(rule.settled(self) for rule in self.rules)

    def _apply(self, offset: int, record: MetadataRecord) -> None:
        self.note("log", offset, encode_record(record).decode())
        if offset != self.image.position and self.records:
            self.violate("one log", f"offset {offset} follows {self.image.position - 1}")
        if isinstance(record, BrokerRegistered):
            self.storages.setdefault(record.node_id, []).append(record.storage)
        self.records[offset] = record
        step = Step(offset, record, self.image, apply(self.image, record, offset))
        self.image = step.after
        self.images.setdefault(self.image.position, []).append(self.image)
        self._judge(rule.applied(self, step) for rule in self.rules)

    def _judge(self, findings: Iterator[Iterator[str]]) -> None:
        for rule, problems in zip(self.rules, findings, strict=True):
            for wrong in problems:
                self.violate(rule.name, wrong)

    def look(self, node: int, image: ClusterImage) -> None:
        """Checks a broker's image: equal prefixes of the log mean equal images."""
        expected = self.images.get(image.position)
        if not image.position or (expected is not None and any(image == replayed for replayed in expected)):
            return
        text = f"at position {image.position} node {node} has {image}"
        self.violate("one image", f"{text}, and others {expected[-1] if expected else 'nothing yet'}")

    # -- what is known of disks and voters ---------------------------------------------------------------------------

    def ever_voted(self, node: int) -> bool:
        return any(voter.node_id == node for voters in self.voter_sets for voter in voters)

    # -- notes -------------------------------------------------------------------------------------------------------

    def saw(self, name: str, is_seen: bool = True) -> None:
        """Counts an event by its name."""
        if is_seen:
            self.counters[name] += 1

    def note(self, *what: object) -> None:
        """Makes an event part of the trace."""
        said, now_s = " ".join(map(str, what)), self.clock()
        self.hash.update(f"{now_s:.6f} {said};".encode())
        self.events.append(f"{now_s:9.4f}  {said}")

    def violate(self, rule: str, what: str) -> None:
        said = f"{rule}: {what}"
        if len(self.violations) < VIOLATIONS_MAX and said not in self.violations:
            self.note("VIOLATION", said)
            self.violations.append(said)
