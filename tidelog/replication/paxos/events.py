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
    """The node is up and its peers can be reached. The event comes first, and once."""


class Received(msgspec.Struct, frozen=True):
    """A peer's message has come, with the bytes of its values."""

    sender: int
    message: Message


class Stored(msgspec.Struct, frozen=True):
    """All writes up to this `Persist.sequence` are durable."""

    sequence: int


class StoreFailed(msgspec.Struct, frozen=True):
    """A write or an fsync failed. Writes that were not reported `Stored` are not to be relied on, nor tried again."""


class Damaged(msgspec.Struct, frozen=True):
    """The payload at this position turned out to be unreadable."""

    position: int


class Restored(msgspec.Struct, frozen=True):
    """The payload at this position, which was unreadable, is at hand again: another copy was found on this disk."""

    position: int


class Timer(Enum):
    """The purpose of a timer."""

    RESEND = "resend"
    """A proposer repeats requests that were not answered, after about three round trips."""
    CATCHUP = "catchup"
    """A replica asks a peer for learned slots. The time is for how long a lost `Learned` may stay unnoticed."""
    RECOVER = "recover"
    """A founder asks the others again, after about half a second."""


class TimerFired(msgspec.Struct, frozen=True):
    """A timer that `SetTimer` started has run out."""

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
    """Stop being coordinator, or trying to. No peer is told."""


class Append(msgspec.Struct, frozen=True):
    """Propose a batch. The shell has given it its offsets, from `LogCoordinator.next_offset` on, before it took the
    digest.

    With Kind.VOTERS it ends the term: nothing may be in flight when it comes, nothing is taken after it, and when it
    is applied the next term begins under another quorum. The quorum of its own term joins old and new voters.
    """

    count: int
    digest: bytes
    kind: Kind = Kind.APPEND
    is_lazy: bool = False
    """True if the batch may be called chosen when a quorum has it in memory."""
    # Never together with `is_lazy`: a batch that is chosen in memory can be lost, and would take those behind it along.
    is_in_order: bool = False
    """True if the batch counts only if every value counts that its coordinator proposed before it, back to the last
    `Append` that was not in order."""


class Truncate(msgspec.Struct, frozen=True):
    """Propose to truncate the positions below `begin`, which the caller knows that nobody needs (a snapshot,
    retention)."""

    begin: int


class Delete(msgspec.Struct, frozen=True):
    """Propose to delete the records below this offset, in all state machines, at the position that the value gets. The
    offset is at most the applied prefix's next offset."""

    offset: int


class Found(msgspec.Struct, frozen=True):
    """Let this node take part in founding this cluster, all of whose members are new. It is told only when a cluster is
    created, and the id says which."""

    cluster_id: str


class Rejoin(msgspec.Struct, frozen=True):
    """Come back behind a fence, because the disk was lost. The number is this node's, issued by a caller that knows
    it to be larger than every number ever issued for this log; each attempt needs a new one."""

    number: int


class Enlist(msgspec.Struct, frozen=True):
    """Let this disk vote at once, because it has never voted, and goes by an id that no other disk ever had."""


class Reconfigure(msgspec.Struct, frozen=True):
    """Go by other voters from now on, or by another id. That ends the proposer, if there is one; everything that is
    stored stays.

    Sends to the former id that wait for the disk still come out; no node acts on them.
    """

    node: int
    quorum: Quorum
    in_force: Quorum
    """The quorum of the voters in force; `quorum` itself, unless that joins others to them."""
    position: int
    """The position of the applied VOTERS value that names the voters in force; -1 for the founders."""
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
    """False if no effect waits for the write: it may be flushed with the next one that is urgent."""
    is_soon: bool = False
    """True if no effect waits for the write, but a peer counts on it already (a lazy accept): it is to be flushed soon,
    even if no urgent one follows."""


class Send(msgspec.Struct, frozen=True):
    """Send a message to a node, with the payloads of the values in it."""

    to: int
    message: Message


class SetTimer(msgspec.Struct, frozen=True):
    """Report `TimerFired` once, later. Setting a timer again replaces it."""

    timer: Timer
    token: int = 0


class Proposed(msgspec.Struct, frozen=True):
    """An `Append`, `Truncate` or `Delete` got its position. It is in the log when it is `Applied`; until then it is
    unknown whether it will be."""

    position: int
    value: Value


class Reason(Enum):
    """The reason for a refusal. The refused request is surely not in the log."""

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
    """A request of the shell was refused, and has no effect."""

    event: Event
    reason: Reason


class Elected(msgspec.Struct, frozen=True):
    """This node is coordinator: its barrier is applied, and it takes `Append`s."""

    number: int
    position: int
    """The position of the barrier."""
    next_offset: int


class Awaits(msgspec.Struct, frozen=True):
    """A quorum has promised, but the election waits, and has for some time, for a copy of what may be chosen at this
    position, the first of those that wait. It comes again only if position or voters change."""

    position: int
    unheard: tuple[int, ...]
    """The voters that have not promised yet, any of which may have the copy."""


class Lost(msgspec.Struct, frozen=True):
    """This node is not coordinator, or will not be, under this number. Values that it proposed and that are not applied
    here may or may not be in the log."""

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
    """A quorum has accepted a value that this node proposed. Those at the positions before it may still be open."""

    position: int
    value: Value
    accepted_by: tuple[int, ...] = ()
    """The quorum that accepted it."""
    is_named: bool = False
    """True if the value is chosen by its name alone, since no node has shown its payload."""


class Applied(msgspec.Struct, frozen=True):
    """The value at the next position in order is applied. Now, and not before, an APPEND may be acknowledged, if its
    verdict is APPLIED."""

    position: int
    value: Value
    verdict: Verdict
    is_faulty: bool = False
    """True if the payload is not here yet; `Repaired` follows when it has come."""


class Repaired(msgspec.Struct, frozen=True):
    """The payload that was missing at this position has come, and was written."""

    position: int


class Jumped(msgspec.Struct, frozen=True):
    """A peer's log begins behind the applied prefix, and this one goes on at its floor. The state machine needs a
    snapshot."""

    floor: Prefix


class DeletePrefix(msgspec.Struct, frozen=True):
    """The floor is durable: delete the slots below it."""

    begin: int


class StatusChanged(msgspec.Struct, frozen=True):
    """The replica has another status, durably."""

    status: Status


class Halted(msgspec.Struct, frozen=True):
    """The disk failed: this node does not vote until it is started again, from what its disk then holds."""


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
