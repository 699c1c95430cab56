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
    """The right of a replica to vote; only VOTING replicas promise and accept."""

    EMPTY = "empty"
    """The disk is new, or was lost: the replica cannot tell which, and must not vote."""
    STARTING = "starting"
    """The replica knows the founders of its group, and that it has never voted."""
    RECOVERING = "recovering"
    """The replica lost its disk, and rejoins behind a fence."""
    VOTING = "voting"


class Kind(Enum):
    """The purpose of a value."""

    # The numbers stand in journals on disk (`broker.consensus.stored`) and in messages: none is ever given another
    # meaning.
    NOP = 0
    """Fills a position for which no value was found."""
    BARRIER = 1
    """The first value of a coordinator, chosen before any value of its clients is proposed."""
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
"""The kinds of values whose bytes lie with the shell."""


class Value(msgspec.Struct, frozen=True, gc=False):
    """A value that a position may hold. Equal values are the same value, payload included."""

    kind: Kind
    # Kept when the value is proposed again under another number: only by its birth can the log tell that a value found
    # behind a newer coordinator's is a ghost.
    birth: Natural = NO_NUMBER
    """The number of the coordinator that proposed it first. A NOP has none: it is neutral in the order of births."""
    base_offset: Natural = 0
    count: Natural = 0
    """The number of offsets taken from `base_offset` on, by an APPEND, or by records that come with VOTERS; else 0. In
    a DELETE, `base_offset` is the first to stay."""
    digest: bytes = b""
    """The digest of the payload: any copy with this digest is right."""
    begin: Natural = 0
    """A TRUNCATE has here the first position to stay, at most its own; an APPEND, if not 0, the position from which on
    the log has to be unbroken for it to count (`apply`); a NOP, if not 0, its own position, because an operator gave up
    the value there: such a NOP breaks no order."""

    def names_voters(self, since: int) -> bool:
        """Returns True if this is VOTERS that count, in a log where only births from `since` on do."""
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
    """The highest number under which this value was accepted here; NO_NUMBER if it was only learned."""
    value: Value
    learned: bool = False
    """True if the value is known to be chosen."""
    faulty: bool = False
    """True if the payload of the value cannot be read here (CTRL's have_faulty)."""


class Prefix(msgspec.Struct, frozen=True, gc=False):
    """The state of a log before `position`, as far as what follows depends on it."""

    position: Natural = 0
    # Without it, a replica whose log begins here would apply ghosts behind its floor that the others have found void.
    epoch: Natural = NO_NUMBER
    """The newest birth applied."""
    next_offset: Natural = 0
    """The offset of the next record."""
    start_offset: Natural = 0
    """The log start offset: records below are deleted."""
    unbroken_from: Natural = 0
    """The position from which on all values are of the newest birth, and not void."""


ORIGIN = Prefix()


class Metadata(msgspec.Struct, frozen=True):
    """The metadata of a replica, which no peer can give back: two copies on disk, both durable before it counts."""

    incarnation: str
    """The random name of this disk's replica, drawn when it was made: after the loss of a disk it is another."""
    status: Status = Status.EMPTY
    promised: int = NO_NUMBER
    """The largest number promised: no smaller one is accepted at any position."""
    # Durable before the number is sent: used again after a crash, it could name two values at one position.
    issued: int = NO_NUMBER
    """The largest number that this node has used."""
    cluster_id: str = ""
    # A replica that finds this set at its start was not stopped in good order. It has perhaps forgotten what it
    # accepted, so it must not vote under its old id: a quorum may count on that.
    may_forget: bool = False
    """True while values are accepted here before they are on disk."""
    founders: tuple[tuple[int, str], ...] = ()
    """The node and incarnation of each founding replica, if this is one of them."""


class StoredLog(msgspec.Struct, frozen=True):
    """The log of a replica as its disk gives it back at start."""

    metadata: Metadata
    floor: Prefix = ORIGIN
    """The prefix at whose position the log begins; what lay before was chosen, applied, and truncated."""
    slots: tuple[Slot, ...] = ()
    voters_since: int = NO_NUMBER
    """The smallest birth of VOTERS that count: an operator has had the log go on without those of older births."""


Record = Metadata | Prefix | Slot
"""A record that a replica writes; a `Prefix` is its new floor."""
