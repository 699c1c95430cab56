"""The stored state of a replica: its metadata, a slot per position, and where its log begins.

Positions count from 0, one value each. `end` and `position` of a `Prefix` are exclusive, as everywhere.

Values are references. The bytes of a batch stay with the shell, which finds them by position or digest; a core compares
digests. So a value without payload (NOP, BARRIER, TRUNCATE) is whole in itself, and one with payload (APPEND, VOTERS)
may be known without its bytes: it is then `faulty` here, by damage to the disk or because no good copy has come yet. If
the disk has lost even which value it was, position and number remain: the slot is faulty, and its value UNKNOWN.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from tidelog.model.wire_numbers import Natural
from tidelog.replication.paxos.numbers import NO_NUMBER


class Status(Enum):
    """A replica's right to vote; only VOTING replicas promise and accept."""

    EMPTY = "empty"
    """A new disk, or a lost one: it cannot tell."""
    STARTING = "starting"
    """It knows the founders of its group, and that it has never voted."""
    RECOVERING = "recovering"
    """It lost its disk and rejoins behind a fence."""
    VOTING = "voting"


class Kind(Enum):
    """The purpose of a value."""

    NOP = 0
    """Fills a position that no value was found for."""
    BARRIER = 1
    """A coordinator's first: chosen before anything of its clients."""
    APPEND = 2
    TRUNCATE = 3
    """Drops the positions below `Value.begin`: the log's head, never its tail."""
    VOTERS = 4
    """Names the voters from here on (`voters.py`) in its payload, which may carry records as well."""
    UNKNOWN = 5
    """Not a value: the disk has lost which one it was. Such a slot is faulty and not learned, and its number stands."""
    DELETE = 6
    """Deletes the records below `Value.base_offset` (Kafka: delete records). It frees no position."""


WITH_PAYLOAD = (Kind.APPEND, Kind.VOTERS)
"""Values whose bytes lie with the shell."""


class Value(msgspec.Struct, frozen=True, gc=False):
    """A value that a position may hold. Equal values are the same value, payload included."""

    kind: Kind
    birth: Natural = NO_NUMBER
    """The number of the coordinator that proposed it first; proposing it again under another number keeps it.
    A NOP has none: it is neutral in the order of births."""
    base_offset: Natural = 0
    count: Natural = 0
    """Offsets taken, from `base_offset` on: by an APPEND, and by records that come with VOTERS; 0 for the rest. Of a
    DELETE, `base_offset` is the first to stay."""
    digest: bytes = b""
    """Names the payload's content: any copy with this digest is right."""
    begin: Natural = 0
    """A TRUNCATE has here the first position to stay, at most its own. An APPEND, if this is not 0, counts only if the
    log is unbroken from this position to its own (`apply`). A NOP has here its own position if an operator gave up
    what stood there: it breaks nothing then."""

    def names_voters(self, since: int) -> bool:
        """Returns True if this says who votes, in a log where only births from `since` on count for that."""
        return self.kind is Kind.VOTERS and self.birth >= since


NOP = Value(Kind.NOP)
UNKNOWN = Value(Kind.UNKNOWN)


def given_up(position: int) -> Value:
    """Returns the NOP for a position whose value was perhaps chosen, and is lost with the majority that knew it."""
    return Value(Kind.NOP, begin=position)


class Slot(msgspec.Struct, frozen=True, gc=False):
    """A position of one replica: the acceptor's record and the learner's in one row."""

    position: Natural
    number: Natural
    """The highest under which this value was accepted here; NO_NUMBER if it only was learned."""
    value: Value
    learned: bool = False
    """The value is chosen, for good."""
    faulty: bool = False
    """The value is known, its payload is not to be had here (CTRL's have_faulty)."""


class Prefix(msgspec.Struct, frozen=True, gc=False):
    """All that the rest of a log depends on of what lies before `position`."""

    position: Natural = 0
    epoch: Natural = NO_NUMBER
    """The newest birth applied."""
    next_offset: Natural = 0
    """The offset that the next record gets."""
    start_offset: Natural = 0
    """Records below are deleted."""
    unbroken_from: Natural = 0
    """From there to `position`, all values are of the newest birth, and in force."""


ORIGIN = Prefix()


class Metadata(msgspec.Struct, frozen=True):
    """A replica's own facts, which no peer can give back: two copies on disk, both durable before it counts."""

    incarnation: str
    """Drawn when the replica was made on this disk: after the loss of a disk it is another."""
    status: Status = Status.EMPTY
    promised: int = NO_NUMBER
    """No smaller number is accepted at any position."""
    issued: int = NO_NUMBER
    """The largest number this node has used."""
    cluster_id: str = ""
    may_forget: bool = False
    """Values are accepted here before they are on disk. Whoever finds this at its start was not stopped in good order,
    has perhaps forgotten what it accepted, and must not vote under its old id."""
    founders: tuple[tuple[int, str], ...] = ()
    """Node and incarnation of each founding replica, if this is one of them."""


class StoredLog(msgspec.Struct, frozen=True):
    """The log of a replica as its disk gives it back at start."""

    metadata: Metadata
    floor: Prefix = ORIGIN
    """The log begins at its position; what lay before is chosen, applied, and gone."""
    slots: tuple[Slot, ...] = ()
    voters_since: int = NO_NUMBER
    """VOTERS of an older birth say nothing any more: an operator has had the log go on without them."""


Record = Metadata | Prefix | Slot
"""A record that a replica writes; a `Prefix` is its new floor."""
