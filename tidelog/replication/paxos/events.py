"""The events that a shell tells a `PaxosNode`, and the effects that it asks for.

Effects are carried out in list order. The order is a promise: what must be durable first has been reported durable
before the effect appears, so the shell need not hold back anything.

Time and chance are the shell's. A timer has a purpose; how long it runs the shell decides, and draws it anew each time
from [T, 2T), lest two nodes meet again and again.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from tidelog.replication.paxos.apply import Verdict
from tidelog.replication.paxos.messages import Message
from tidelog.replication.paxos.state import Kind, Metadata, Prefix, Record, Status, Value
from tidelog.replication.quorum import Quorum

# -- events ----------------------------------------------------------------------------------------------------------


class Started(msgspec.Struct, frozen=True):
    """The node is up and its peers can be reached; comes first, and once."""


class Received(msgspec.Struct, frozen=True):
    """A peer's message has come, with the bytes of its values."""

    sender: int
    message: Message


class Stored(msgspec.Struct, frozen=True):
    """Every `Persist` up to this sequence is durable."""

    sequence: int


class StoreFailed(msgspec.Struct, frozen=True):
    """A write or an fsync failed; nothing that was not reported `Stored` can be relied on, or written again."""


class Damaged(msgspec.Struct, frozen=True):
    """The payload at this position turned out to be unreadable."""

    position: int


class Restored(msgspec.Struct, frozen=True):
    """The payload at this position, which was unreadable, is at hand again: another copy was found on this disk."""

    position: int


class Timer(Enum):
    """The purpose of a timer."""

    RESEND = "resend"
    """A proposer's requests that were not answered. About three round trips."""
    CATCHUP = "catchup"
    """Ask a peer what it has learned. As long as a lost `Learned` may stay unnoticed."""
    RECOVER = "recover"
    """Ask the founders again. About half a second."""


class TimerFired(msgspec.Struct, frozen=True):
    timer: Timer
    token: int = 0
    """The token of the `SetTimer`. A RESEND whose token names a proposer that is gone is ignored."""


class Elect(msgspec.Struct, frozen=True):
    """Become coordinator under this number: the node's own, larger than any it has used.

    Ends in `Elected` or `Lost`. The caller sets a deadline (replicas may be down), and tries again with a larger
    number after a random time.
    """

    number: int


class Demote(msgspec.Struct, frozen=True):
    """Stop being coordinator, or trying to. Tells nobody."""


class Append(msgspec.Struct, frozen=True):
    """A batch for the log. The shell has given it its offsets, from `LogCoordinator.next_offset` on, before it took the
    digest.

    With Kind.VOTERS it ends the reign: nothing may be in flight when it comes, nothing is taken after it, and when it
    is applied the next reign begins under another quorum. Its own reign's quorum joins the old voters and the new.
    """

    count: int
    digest: bytes
    kind: Kind = Kind.APPEND
    is_lazy: bool = False
    """It may be called chosen when a quorum has it in memory."""
    is_in_order: bool = False
    """It counts only if all that its coordinator proposed before it counts, back to the last `Append` that was not in
    order. Not for one that is lazy: what is chosen in memory can be lost."""


class Truncate(msgspec.Struct, frozen=True):
    """Drop the positions below `begin`. The caller knows that nobody needs them (a snapshot, retention)."""

    begin: int


class Delete(msgspec.Struct, frozen=True):
    """Delete the records below this offset, in all state machines, at the position that it gets. Nothing beyond what is
    applied can be deleted."""

    offset: int


class Found(msgspec.Struct, frozen=True):
    """This node may take part in founding this cluster, with its members all new. Only at the creation of a cluster,
    whose id says which."""

    cluster_id: str


class Rejoin(msgspec.Struct, frozen=True):
    """The disk was lost: come back behind a fence. The number is this node's, issued by somebody who knows that it is
    larger than every number ever issued for this log; a new one for every attempt."""

    number: int


class Enlist(msgspec.Struct, frozen=True):
    """This disk is a voter's that has never voted, under an id that no other disk ever had: it may vote at once."""


class Reconfigure(msgspec.Struct, frozen=True):
    """Other voters decide from now on, or this node goes by another id. Ends the proposer, if there is one; everything
    that is stored stays.

    Sends to the former id that wait for the disk still come out; they mean nothing to anybody.
    """

    node: int
    quorum: Quorum
    in_force: Quorum
    """The quorum of the voters in force; `quorum` itself, unless that joins others to them."""
    position: int
    """The position of the applied VOTERS value that made the voters in force; -1 for the first ones."""
    settling: tuple[VotersFound, ...] = ()
    """VOTERS whose voters `quorum` includes besides those in force."""


class VotesLost(msgspec.Struct, frozen=True):
    """The disks of these voters, and of no others, have lost their votes: they answer under other ids, if at all."""

    nodes: tuple[int, ...]


Event = (
    Started
    | Received
    | Stored
    | StoreFailed
    | Damaged
    | Restored
    | TimerFired
    | Elect
    | Demote
    | Append
    | Truncate
    | Delete
    | Found
    | Rejoin
    | Enlist
    | Reconfigure
    | VotesLost
)

# -- effects ---------------------------------------------------------------------------------------------------------


class Persist(msgspec.Struct, frozen=True):
    """Write these records, in order; report `Stored` when they and all before them are durable."""

    sequence: int
    records: tuple[Record, ...]
    is_urgent: bool = True
    """False if nobody waits for it: it may ride along with the next that is."""
    is_soon: bool = False
    """True if nobody waits for this write, but somebody counts on it: it is not to be left for others to take along."""


class Send(msgspec.Struct, frozen=True):
    to: int
    message: Message


class SetTimer(msgspec.Struct, frozen=True):
    """Report `TimerFired` once, later. Setting a timer again replaces it."""

    timer: Timer
    token: int = 0


class Proposed(msgspec.Struct, frozen=True):
    """An `Append`, `Truncate` or `Delete` got its position. It is in the log once `Applied` says so; until then it is
    unknown whether it will be."""

    position: int
    value: Value


class Reason(Enum):
    """Why something was refused; surely it is not in the log."""

    NOT_COORDINATOR = "not_coordinator"
    WINDOW_FULL = "window_full"
    OUT_OF_RANGE = "out_of_range"
    NOT_VOTING = "not_voting"
    NUMBER_USED = "number_used"
    NOT_EMPTY = "not_empty"
    NOT_MEMBER = "not_member"
    CHANGING = "changing"
    STORAGE_ERROR = "storage_error"
    NOT_DRAINED = "not_drained"
    """VOTERS come alone: something is in flight before them, or they are in flight themselves."""
    VOTERS_CHANGED = "voters_changed"
    """Newer voters are applied than those that this node goes by: `Reconfigure` first."""
    BEHIND = "behind"
    """The log here does not reach the position that the voters came from: catch up first."""


class Refused(msgspec.Struct, frozen=True):
    """Nothing came of what the shell asked for."""

    event: Event
    reason: Reason


class Elected(msgspec.Struct, frozen=True):
    """This node is coordinator: its barrier is applied, `Append` is welcome."""

    number: int
    position: int
    """The position of the barrier."""
    next_offset: int


class Awaits(msgspec.Struct, frozen=True):
    """A quorum has promised, and still the election waits, for some time now: for a copy of what may be chosen at this
    position, the first of its kind. Comes again only if something else is awaited."""

    position: int
    unheard: tuple[int, ...]
    """The voters that have not promised yet, any of whom may have it."""


class Lost(msgspec.Struct, frozen=True):
    """This node is not coordinator, or will not be, under this number. What it proposed and has not seen applied may
    or may not be in the log."""

    number: int
    highest: int
    """The largest number heard of; the next attempt needs a larger one."""


class VotersFound(msgspec.Struct, frozen=True):
    """A quorum's promises show VOTERS that are not settled, and that this attempt's quorum does not include. They may
    be chosen, and others may decide already; so the attempt ends, with `Lost`, and has written nothing.

    The payload is at hand, as with a promise. Try again with these voters' majority joined to the quorum, and this in
    `Reconfigure.settling`, until the position is applied.
    """

    position: int
    value: Value


class Chosen(msgspec.Struct, frozen=True):
    """A quorum has accepted a value that this node proposed; not necessarily the ones before it."""

    position: int
    value: Value
    accepted_by: tuple[int, ...] = ()
    """The quorum: it is on their disks."""
    is_named: bool = False
    """It is chosen by its name alone: nobody has shown its payload."""


class Applied(msgspec.Struct, frozen=True):
    """The next position in order. Now, and not before, an APPEND may be acknowledged, if it is APPLIED."""

    position: int
    value: Value
    verdict: Verdict
    is_faulty: bool = False
    """The payload is not here yet; `Repaired` follows when it has come."""


class Repaired(msgspec.Struct, frozen=True):
    """The payload that was missing at this position is here, and was written."""

    position: int


class Jumped(msgspec.Struct, frozen=True):
    """The peers' logs begin later than this one has come: go on from their floor. A state machine needs a snapshot."""

    floor: Prefix


class DeletePrefix(msgspec.Struct, frozen=True):
    """The floor is durable: what lies below it may be deleted."""

    begin: int


class StatusChanged(msgspec.Struct, frozen=True):
    status: Status


class Halted(msgspec.Struct, frozen=True):
    """The disk failed: this node votes no more until it is started again, from what its disk then holds."""


Effect = (
    Persist
    | Send
    | SetTimer
    | Proposed
    | Refused
    | Elected
    | Awaits
    | Lost
    | VotersFound
    | Chosen
    | Applied
    | Repaired
    | Jumped
    | DeletePrefix
    | StatusChanged
    | Halted
)

# -- between the parts of one node -----------------------------------------------------------------------------------


class Proceed(msgspec.Struct, frozen=True):
    """The write that the proposer with this number waited for is durable."""

    number: int


class Admit(msgspec.Struct, frozen=True):
    """The metadata is durable that gives the replica another status."""

    metadata: Metadata


Action = Effect | Proceed | Admit
