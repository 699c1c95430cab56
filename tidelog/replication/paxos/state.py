"""The stored state of a replica: its metadata, a slot per position, and where its log begins.

Positions count from 0, one value each. `end`, and the `position` of a `Prefix`, are exclusive.

Values are references. The bytes of a batch stay with the shell, which finds them by position or digest; the state
machine compares digests. So a value without payload (NOP, BARRIER, TRUNCATE) is complete in itself, and one with
payload (APPEND, VOTERS) may be known without its bytes: it is then `faulty` here, by damage to the disk or because no
good copy has arrived yet. If the disk has lost even the value's digest, position and number remain: the slot is faulty,
and its value UNKNOWN.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from tidelog.model.wire_numbers import Natural
from tidelog.replication.paxos.numbers import NO_NUMBER


class Status(Enum):
    """A replica's right to vote; only VOTING replicas promise and accept."""

    EMPTY = "empty"
    """The disk is new, or its content was lost: the replica cannot tell which, and must not vote."""
    STARTING = "starting"
    """The replica knows the founders of its log, and that it has never voted."""
    RECOVERING = "recovering"
    """The replica lost its disk, and rejoins behind a fence (`recover.py`)."""
    VOTING = "voting"


class Kind(Enum):
    """The kind of a value in the log."""

    # The numbers stand in journals on disk (`broker.consensus.stored`) and in messages: none is ever given another
    # meaning.
    NOP = 0
    """A value without effect, for a position at which no value can have been chosen."""
    BARRIER = 1
    """The first value of a coordinator, chosen before any value of its clients is proposed."""
    APPEND = 2
    TRUNCATE = 3
    """Drops the positions below `Value.begin`, at the beginning of the log."""
    VOTERS = 4
    """Sets the voters that decide from this position on (`voters.py`), by its payload, which may also have records."""
    UNKNOWN = 5
    """Marks a slot whose value the disk has lost, digest included. The slot is faulty and not learned; its proposal
    number remains."""
    DELETE = 6
    """Deletes the records below `Value.base_offset` (Kafka's DeleteRecords). It frees no position."""


WITH_PAYLOAD = (Kind.APPEND, Kind.VOTERS)
"""The kinds of values that have a payload, whose bytes the shell (the code with I/O) keeps."""


class Value(msgspec.Struct, frozen=True, gc=False):
    """A value at a position of the log. Two equal values have the same payload."""

    kind: Kind
    # Kept when the value is proposed again under another number: only by its birth can the log tell that a value found
    # behind a newer coordinator's is a ghost.
    birth: Natural = NO_NUMBER
    """The proposal number of the coordinator that proposed it first. A NOP has none, and is ignored when births are
    compared."""
    base_offset: Natural = 0
    count: Natural = 0
    """The number of record offsets from `base_offset` on that an APPEND, or the records within VOTERS, take; else 0. In
    a DELETE, `base_offset` is the first offset that stays."""
    digest: bytes = b""
    """The digest of the payload, by which any copy is verified."""
    begin: Natural = 0
    """In a TRUNCATE, the first position that stays, at most its own. In an APPEND, if not 0, what the batch needs below
    it to have an effect (`apply`): the position from which on the log has to be unbroken, or the positions named in it
    (`predecessors`). In a NOP, if not 0, its own position, because an operator gave up the value there; such a NOP does
    not break the log."""

    def names_voters(self, since: int) -> bool:
        """Returns True if this is a VOTERS value in force, in a log where only VOTERS values count that were first
        proposed under number `since` or a larger one."""
        return self.kind is Kind.VOTERS and self.birth >= since


NOP = Value(Kind.NOP)
UNKNOWN = Value(Kind.UNKNOWN)


def given_up(position: int) -> Value:
    """Returns the NOP for a position whose value may have been chosen, and is lost with the majority that knew it."""
    return Value(Kind.NOP, begin=position)


class Slot(msgspec.Struct, frozen=True, gc=False):
    """A position of one replica's log: the value that the replica has accepted or learned there."""

    position: Natural
    number: Natural
    """The highest proposal number under which this value was accepted here; NO_NUMBER if it was only learned."""
    value: Value
    learned: bool = False
    """True if the value is known to be chosen."""
    faulty: bool = False
    """True if the value's payload cannot be read here (have_faulty in the CTRL paper)."""


class Prefix(msgspec.Struct, frozen=True, gc=False):
    """The state of a log before `position`, as far as the effect of later values depends on it."""

    position: Natural = 0
    # Without it, a replica whose log begins here would apply ghosts behind its floor that the others have found void.
    epoch: Natural = NO_NUMBER
    """The newest birth (proposal number of the first proposer) among the applied values."""
    next_offset: Natural = 0
    """The offset that the next record gets."""
    start_offset: Natural = 0
    """The log start offset: records below are deleted."""
    unbroken_from: Natural = 0
    """The position from which on all values have the newest birth, and none is void."""
    lapsed: tuple[Natural, ...] = ()
    """The positions without a value in force, from the first value with the newest birth on; only the nearest ones,
    which values behind this position may name (`predecessors`)."""


ORIGIN = Prefix()


class Metadata(msgspec.Struct, frozen=True):
    """The metadata of a replica, which no peer can restore. It is stored in two copies, which both have to be durable
    before it counts."""

    incarnation: str
    """The random name of this disk's replica, drawn when it was created; a replica on a replaced disk has another."""
    status: Status = Status.EMPTY
    promised: int = NO_NUMBER
    """The largest proposal number promised: no value is accepted under a smaller one at any position."""
    # Durable before the number is sent: used again after a crash, it could name two values at one position.
    issued: int = NO_NUMBER
    """The largest proposal number that this node has used."""
    cluster_id: str = ""
    # A replica that finds this set at its start was not stopped in good order. It has perhaps forgotten what it
    # accepted, so it must not vote under its old id: a quorum may count on that.
    may_forget: bool = False
    """True while values are accepted here before they are on disk."""
    founders: tuple[tuple[int, str], ...] = ()
    """The node and incarnation of each founding replica, if this is one of them."""


class StoredLog(msgspec.Struct, frozen=True):
    """The log of a replica as read from its disk at start."""

    metadata: Metadata
    floor: Prefix = ORIGIN
    """The first position of the log, with the state there; all values before it were chosen, applied, and truncated."""
    slots: tuple[Slot, ...] = ()
    voters_since: int = NO_NUMBER
    """VOTERS values that were first proposed under a smaller number than this do not count. An operator who lets a log
    continue without its majority raises it."""


Record = Metadata | Prefix | Slot
"""A record that a Paxos replica writes to its journal; a `Prefix` is the log's new first position, with the state
there."""
