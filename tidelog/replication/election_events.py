"""Events and effects of an election, and the messages that its voters exchange.

Messages are small and carry no log. Each may be lost, repeated, late and out of order.
"""

from __future__ import annotations

import msgspec

from tidelog.model.wire_numbers import Natural
from tidelog.replication.quorum import Quorum

# -- messages --------------------------------------------------------------------------------------------------------


class Heartbeat(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Tells that the leader lives, and asks for the next lease."""

    number: Natural
    """The proposal number that it was elected under."""
    beat: Natural
    """Counts its heartbeats; the answer names it, and so the moment from which the lease counts."""
    end: Natural
    """The end of the leader's log, which a follower has to reach."""


class HeartbeatAnswer(msgspec.Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """Grants a lease: the sender promises nobody else for the length of one."""

    number: Natural
    beat: Natural
    free_ms: Natural | None = None
    """Milliseconds since the last lease ended that the sender granted to an earlier term; None if it does not say."""


class PreVote(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Asks a voter whether it would promise the sender."""

    round: Natural
    """Counts the sender's rounds of asking."""


class PreVoteAnswer(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Tells whether the sender would promise. It binds nobody."""

    round: Natural
    granted: bool


class LeaseReleased(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Tells that the term under this number is over, and so are its leases."""

    number: Natural
    successor: Natural | None = None
    """The node that should lead next; None if any voter may."""


ElectionMessage = Heartbeat | HeartbeatAnswer | PreVote | PreVoteAnswer | LeaseReleased

# -- events ----------------------------------------------------------------------------------------------------------


class Tick(msgspec.Struct, frozen=True):
    """Time has passed. The event comes first, and then when the last `WakeAt` says; more often does no harm."""


class Heard(msgspec.Struct, frozen=True):
    """A message of another node has come."""

    sender: int
    message: ElectionMessage


class PeerDown(msgspec.Struct, frozen=True):
    """A voter's process has ended: its connections broke, and its host refuses new ones. The event comes after all of
    its messages. If it is not true after all, that costs time, and no lease."""

    voter: int


class Promised(msgspec.Struct, frozen=True):
    """The node's own replica takes up a promise request, its own proposer's included.

    The caller tells it in the same turn of the loop in which the replica takes the request up, not when the promise is
    durable: between the two, no heartbeat of an older term may be answered.
    """

    number: int


class Won(msgspec.Struct, frozen=True):
    """The engine is coordinator under this number."""

    number: int


class LostTerm(msgspec.Struct, frozen=True):
    """The attempt of the engine, or its term, has ended, and the caller has not begun another by itself."""

    number: int


class Reconfigured(msgspec.Struct, frozen=True):
    """Other voters decide from now on, and the engine has dropped its proposer. `me` may have become a voter."""

    me: int
    quorum: Quorum


class Ready(msgspec.Struct, frozen=True):
    """This node could not have led before, and can now."""


class StepAside(msgspec.Struct, frozen=True):
    """Let another node lead, because this one is about to stop. `to` is the successor; None if any voter may be."""

    to: int | None


class Advanced(msgspec.Struct, frozen=True):
    """The end of this node's log has moved; its heartbeats tell it from now on, if it leads."""

    end: int


class Listeners(msgspec.Struct, frozen=True):
    """The learners that this node knows have changed; they hear heartbeats beside the voters."""

    nodes: tuple[int, ...]


ElectionEvent = (
    Tick | Heard | PeerDown | Promised | Won | LostTerm | Ready | Reconfigured | StepAside | Advanced | Listeners
)

# -- effects ---------------------------------------------------------------------------------------------------------


class Tell(msgspec.Struct, frozen=True):
    """Send this message to a node."""

    to: int
    message: ElectionMessage


class Campaign(msgspec.Struct, frozen=True):
    """Have the engine elected, under a number larger than `Election.number` and all that it knows; report `Won` or
    `LostTerm`."""


class Resign(msgspec.Struct, frozen=True):
    """Have the engine stop leading, or trying to (`Demote`). No report is needed."""


class LeaderChanged(msgspec.Struct, frozen=True):
    """The leader changed, as far as this node believes, which proves nothing. `leader` is None if it knows of none."""

    leader: int | None
    number: int
    """The largest proposal number under which a leader was heard of."""


class WakeAt(msgspec.Struct, frozen=True):
    """Report `Tick` at this time, in monotonic seconds, in place of the time before. If infinite, there is nothing to
    wait for."""

    at_s: float


ElectionEffect = Tell | Campaign | Resign | LeaderChanged | WakeAt
