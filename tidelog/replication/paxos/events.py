"""The events that a shell (the code with I/O) gives to a `PaxosNode`, and the effects that the node returns.

Effects are carried out in list order. The order is a promise: what must be durable first has been reported durable
before the effect appears, so the shell need not hold back anything.

The shell owns the clock and randomness. A timer has a purpose; the shell decides its duration, and draws it anew each
time from [T, 2T), so that two nodes do not collide again and again.
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
    """Event: the node is started and its peers can be reached. It is the first event, and comes once."""


class Received(msgspec.Struct, frozen=True):
    """Event: a peer's message has arrived, with the payloads of its values."""

    sender: int
    message: Message


class Stored(msgspec.Struct, frozen=True):
    """Event: all writes up to this `Persist.sequence` are durable."""

    sequence: int


class StoreFailed(msgspec.Struct, frozen=True):
    """Event: a write or an fsync failed. Writes that were not reported `Stored` are not to be relied on, nor tried
    again."""


class Damaged(msgspec.Struct, frozen=True):
    """Event: the payload at this position turned out to be unreadable."""

    position: int


class Restored(msgspec.Struct, frozen=True):
    """Event: the payload at this position, which was unreadable, can be read again, since another copy was found on
    this disk."""

    position: int


class Timer(Enum):
    """The purpose of a timer of the Paxos state machine."""

    RESEND = "resend"
    """A proposer repeats requests that were not answered. Its duration is about three round trips."""
    CATCHUP = "catchup"
    """A replica asks a peer for learned slots. Its duration bounds how long a lost `Learned` stays unnoticed."""
    RECOVER = "recover"
    """A node that founds a log asks the other founders again. Its duration is about half a second."""


class TimerFired(msgspec.Struct, frozen=True):
    """Event: a timer that `SetTimer` started has run out."""

    timer: Timer
    token: int = 0
    """The token of the `SetTimer`. A RESEND whose token names a proposer that no longer exists is ignored."""


class Elect(msgspec.Struct, frozen=True):
    """Event: become coordinator under this proposal number, which must be one of the node's own and larger than any it
    has used.

    The attempt ends in `Elected` or `Lost`. The caller sets a deadline, since replicas may be down, and tries again
    with a larger number after a random time.
    """

    number: int


class Demote(msgspec.Struct, frozen=True):
    """Event: stop being coordinator, or stop the attempt to become it. No peer is notified."""


class Append(msgspec.Struct, frozen=True):
    """Event: propose a batch. The shell has assigned its record offsets, from `LogCoordinator.next_offset` on, before
    it computed the digest.

    With Kind.VOTERS it ends the term: nothing may be in flight when it comes, no other value is accepted after it, and
    when it is applied the next term begins under another quorum. The quorum of its own term joins old and new voters.
    """

    count: int
    digest: bytes
    kind: Kind = Kind.APPEND
    is_lazy: bool = False
    """True if the batch may count as chosen when a quorum has it in memory."""
    # Never together with `is_lazy`: a batch that is chosen in memory can be lost, and would take those behind it along.
    is_in_order: bool = False
    """True if the batch is to be void unless every value takes effect that its coordinator proposed before it, back to
    the last `Append` that was not in order."""
    keys: frozenset[int] | None = None
    """The keys of a batch that needs only those batches before it with which it has a key in common, and is `Released`
    (`releases`); None in a log whose order is total."""


class Truncate(msgspec.Struct, frozen=True):
    """Event: propose to truncate the positions below `begin`, which no node needs any more (a snapshot, retention)."""

    begin: int


class Delete(msgspec.Struct, frozen=True):
    """Event: propose to delete the records below this offset, in all state machines, at the position that the value
    gets. The offset is at most the applied prefix's next offset."""

    offset: int


class Found(msgspec.Struct, frozen=True):
    """Event: this node takes part in founding this log's cluster, all of whose members are new. It comes only when a
    cluster is created; the id names the cluster."""

    cluster_id: str


class Rejoin(msgspec.Struct, frozen=True):
    """Event: the node comes back after its disk was lost, and fences off its former promises first. The proposal number
    is this node's, issued by a caller that knows it to be larger than every number ever issued for this log; each
    attempt needs a new one."""

    number: int


class Enlist(msgspec.Struct, frozen=True):
    """Event: this disk may vote at once, because it has never voted, and has an id that no other disk ever had."""


class Reconfigure(msgspec.Struct, frozen=True):
    """Event: other voters decide from now on, or this node has another id. It ends the proposer, if there is one;
    everything that is stored stays.

    Messages of the former id that wait for the disk are still sent; no node acts on them.
    """

    node: int
    quorum: Quorum
    in_force: Quorum
    """The quorum of the voters in force; the same as `quorum`, unless `quorum` joins other voters to them."""
    position: int
    """The position of the applied VOTERS value that names the voters in force; -1 for the founders."""
    settling: tuple[VotersFound, ...] = ()
    """The values with new voters, possibly chosen, whose voters `quorum` includes besides those in force."""


class VotesLost(msgspec.Struct, frozen=True):
    """Event: the disks of these voters, and of no others, have lost their votes; they answer under other ids, if at
    all."""

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
    """Effect: write these records in order; report `Stored` when they and all before them are durable."""

    sequence: int
    records: tuple[Record, ...]
    is_urgent: bool = True
    """False if no other effect waits for the write: it may be flushed with the next urgent write."""
    is_soon: bool = False
    """True if no effect waits for the write, but a peer relies on it already (a lazy accept): it is to be flushed soon,
    even if no urgent write follows."""


class Send(msgspec.Struct, frozen=True):
    """Effect: send a message to a node, with the payloads of the values in it."""

    to: int
    message: Message


class SetTimer(msgspec.Struct, frozen=True):
    """Effect: report `TimerFired` once, later. Setting a timer again replaces it."""

    timer: Timer
    token: int = 0


class Proposed(msgspec.Struct, frozen=True):
    """Effect: an `Append`, `Truncate` or `Delete` got its position. It is in the log when it is `Applied`; until then
    it is unknown whether it will be."""

    position: int
    value: Value


class Reason(Enum):
    """The reason for refusing a request. The refused request is surely not in the log."""

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
    """The voters can only be changed while nothing is in flight: an earlier value is not applied yet, or a change of
    voters is in flight already."""
    VOTERS_CHANGED = "voters_changed"
    """The applied log has newer voters than those that this node uses: `Reconfigure` must come first."""
    BEHIND = "behind"
    """This node has not applied the log up to the position of the voters that it uses: it must catch up first."""


class Refused(msgspec.Struct, frozen=True):
    """Effect: a request of the shell was refused, and changes nothing."""

    event: Event
    reason: Reason


class Elected(msgspec.Struct, frozen=True):
    """Effect: this node is coordinator: its first value (the barrier) is applied, and it accepts `Append`s."""

    number: int
    position: int
    """The log position of the barrier, the first value of this coordinator."""
    next_offset: int


class Awaits(msgspec.Struct, frozen=True):
    """Effect: a quorum has promised, but the election has waited for some time for an intact copy of a value that may
    be chosen. `position` is the first such position. The effect comes again only if position or voters change."""

    position: int
    unheard: tuple[int, ...]
    """The voters that have not promised yet, any of which may have the intact copy."""


class Lost(msgspec.Struct, frozen=True):
    """Effect: this node is not coordinator, or will not be, under this proposal number. Values that it proposed and
    that are not applied here may or may not be in the log."""

    number: int
    highest: int
    """The largest proposal number that this node has heard of; the next attempt needs a larger one."""


class VotersFound(msgspec.Struct, frozen=True):
    """Effect: a quorum's promises show a value with new voters that may be chosen, and that this attempt's quorum does
    not include. If it is chosen, its voters may decide already; so the attempt ends, with `Lost`, and has written
    nothing.

    The payload is at hand, as with a promise. The caller tries again with a majority of these voters joined to the
    quorum, and this effect in `Reconfigure.settling`, until the position is applied.
    """

    position: int
    value: Value


class Chosen(msgspec.Struct, frozen=True):
    """Effect: a quorum has accepted a value that this node proposed. Values at earlier positions may not be
    chosen yet."""

    position: int
    value: Value
    accepted_by: tuple[int, ...] = ()
    """The nodes of the quorum that accepted the value."""
    is_named: bool = False
    """True if the value is chosen although no node has shown its payload, only its digest."""
    is_adopted: bool = False
    """True if it may have been chosen under a larger number than this node's."""


class Released(msgspec.Struct, frozen=True):
    """Effect: the value at this position, proposed by this node with `Append.keys`, is chosen, and so is everything
    that it needs below it. It may be acknowledged and read, and never turns out void. `Applied` follows, or came just
    before."""

    position: int


class Applied(msgspec.Struct, frozen=True):
    """Effect: the value at the next position in order is applied. An APPEND may be acknowledged only now, or once it is
    `Released`, if its verdict is APPLIED."""

    position: int
    value: Value
    verdict: Verdict
    is_faulty: bool = False
    """True if the payload is not on this node yet; `Repaired` follows when it has arrived."""


class Repaired(msgspec.Struct, frozen=True):
    """Effect: the payload that was missing at this position has arrived, and was written."""

    position: int


class Jumped(msgspec.Struct, frozen=True):
    """Effect: this log continues at the floor (first position) of a peer's log, which begins behind this node's applied
    prefix. The state machine needs a snapshot."""

    floor: Prefix


class DeletePrefix(msgspec.Struct, frozen=True):
    """Effect: the log's new first position (its floor) is durable: delete the slots below it."""

    begin: int


class StatusChanged(msgspec.Struct, frozen=True):
    """Effect: the replica's right to vote (`Status`) has changed, and the change is on disk."""

    status: Status


class Halted(msgspec.Struct, frozen=True):
    """Effect: the disk failed. This node does not vote until it is started again, from what its disk then holds."""


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
    | Released
    | Applied
    | Repaired
    | Jumped
    | DeletePrefix
    | StatusChanged
    | Halted
)

# -- between the parts of one node -----------------------------------------------------------------------------------


class Proceed(msgspec.Struct, frozen=True):
    """Internal event of a node: the write for which the proposer with this number waited is durable."""

    number: int


class Admit(msgspec.Struct, frozen=True):
    """Internal event of a node: the metadata with the replica's new status is durable."""

    metadata: Metadata


Action = Effect | Proceed | Admit
