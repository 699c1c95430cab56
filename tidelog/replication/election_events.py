"""Events and effects of an election, and the messages that its voters exchange.

Messages are small and carry no log. Each may be lost, repeated, late and out of order.
"""

from __future__ import annotations

import msgspec

from tidelog.model.wire_numbers import Natural
from tidelog.replication.quorum import Quorum

# -- messages --------------------------------------------------------------------------------------------------------


class Heartbeat(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The leader's periodic message to voters and learners: it shows that the leader is alive and asks for the next
    lease."""

    number: Natural
    """The proposal number under which the sender was elected."""
    beat: Natural
    """Sequence number of the heartbeat within the term. The answer repeats it, so that the leader counts the lease from
    the moment when that heartbeat was sent."""
    end: Natural
    """The end of the leader's log."""


class HeartbeatAnswer(msgspec.Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """The answer to a heartbeat: it grants the leader a lease, during which the sender promises to no other node."""

    number: Natural
    beat: Natural
    free_ms: Natural | None = None
    """Milliseconds since the end of the last lease that the sender granted to an earlier term; None if the sender's
    version does not report it."""


class PreVote(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A request whether the receiving voter would promise to the sender (pre-vote)."""

    round: Natural
    """Sequence number of the sender's pre-vote rounds."""


class PreVoteAnswer(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The answer to a `PreVote`: whether the sender would promise. It is no promise."""

    round: Natural
    granted: bool


class LeaseReleased(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A leader's message that its term, under this proposal number, is over and so are its leases."""

    number: Natural
    successor: Natural | None = None
    """The node that should lead next; None if any voter may."""


ElectionMessage = Heartbeat | HeartbeatAnswer | PreVote | PreVoteAnswer | LeaseReleased

# -- events ----------------------------------------------------------------------------------------------------------


class Tick(msgspec.Struct, frozen=True):
    """Event: time has passed. It comes first of all events, and then at the time of the last `WakeAt`; more often does
    no harm."""


class Heard(msgspec.Struct, frozen=True):
    """Event: a message of another node has arrived."""

    sender: int
    message: ElectionMessage


class PeerDown(msgspec.Struct, frozen=True):
    """Event: a voter's process has ended, since its connections broke and its host refuses new ones. The event comes
    after all of that voter's messages. If it is not true after all, that costs time, and breaks no lease."""

    voter: int


class Promised(msgspec.Struct, frozen=True):
    """Event: the node's own replica has received a promise request, perhaps from its own proposer.

    The caller reports it in the same turn of the event loop in which the replica takes up the request, not when the
    promise is durable: between the two, no heartbeat of an older term may be answered.
    """

    number: int


class Won(msgspec.Struct, frozen=True):
    """Event: the Paxos engine has been elected coordinator under this proposal number."""

    number: int


class LostTerm(msgspec.Struct, frozen=True):
    """Event: the engine's attempt to be elected, or its term, has ended, and the caller has not begun another
    attempt."""

    number: int


class Reconfigured(msgspec.Struct, frozen=True):
    """Event: other voters decide from now on, and the engine has dropped its proposer. `me` may have become a voter."""

    me: int
    quorum: Quorum


class Ready(msgspec.Struct, frozen=True):
    """Event: this node can lead from now on, which it could not before."""


class StepAside(msgspec.Struct, frozen=True):
    """Event: another node is to lead, because this one is about to stop. `to` is the successor; None if any voter may
    be."""

    to: int | None


class Advanced(msgspec.Struct, frozen=True):
    """Event: the end of this node's log has moved; a leader's heartbeats carry the new end from now on."""

    end: int


class Listeners(msgspec.Struct, frozen=True):
    """Event: the set of learners that this node knows has changed; they receive heartbeats besides the voters."""

    nodes: tuple[int, ...]


ElectionEvent = (
    Tick | Heard | PeerDown | Promised | Won | LostTerm | Ready | Reconfigured | StepAside | Advanced | Listeners
)

# -- effects ---------------------------------------------------------------------------------------------------------


class Tell(msgspec.Struct, frozen=True):
    """Effect: send this message to a node."""

    to: int
    message: ElectionMessage


class Campaign(msgspec.Struct, frozen=True):
    """Effect: have the Paxos engine run for election, under a proposal number larger than `Election.number` and all
    that the engine knows; report `Won` or `LostTerm`."""


class Resign(msgspec.Struct, frozen=True):
    """Effect: have the engine stop leading, or campaigning (`Demote`). No report is needed."""


class LeaderChanged(msgspec.Struct, frozen=True):
    """Effect: report that the leader changed, as far as this node believes, which proves nothing. `leader` is None if
    this node knows of none."""

    leader: int | None
    number: int
    """The largest proposal number under which this node has heard of a leader."""


class WakeAt(msgspec.Struct, frozen=True):
    """Effect: report `Tick` at this time, in monotonic seconds; it replaces the time set before. Infinity if no tick is
    needed."""

    at_s: float


ElectionEffect = Tell | Campaign | Resign | LeaderChanged | WakeAt
