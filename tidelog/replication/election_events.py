"""Events and effects of an election, and the messages that its voters exchange.

Messages are small and carry no log. Each may be lost, repeated, late and out of order.
"""

from __future__ import annotations

import msgspec

from tidelog.model.wire_numbers import Natural
from tidelog.replication.quorum import Quorum

# -- messages --------------------------------------------------------------------------------------------------------


class Heartbeat(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The leader lives, and asks for the next lease."""

    number: Natural
    """The proposal number that it was elected under."""
    beat: Natural
    """Counts its heartbeats; the answer names it, and so the moment from which the lease counts."""
    end: Natural
    """The end of the leader's log, which a follower has to reach."""


class HeartbeatAnswer(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Granted: the sender promises nobody else for the length of a lease."""

    number: Natural
    beat: Natural


class PreVote(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Would you promise me?"""

    round: Natural
    """Counts the sender's rounds of asking."""


class PreVoteAnswer(msgspec.Struct, frozen=True, tag=True, gc=False):
    round: Natural
    granted: bool
    """Binds nobody."""


class LeaseReleased(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The reign under this number is over, and so are its leases."""

    number: Natural
    successor: Natural | None = None
    """The node that should lead next; None if any voter may."""


ElectionMessage = Heartbeat | HeartbeatAnswer | PreVote | PreVoteAnswer | LeaseReleased

# -- events ----------------------------------------------------------------------------------------------------------


class Tick(msgspec.Struct, frozen=True):
    """Time has passed. Comes first, and then whenever the last `WakeAt` says; more often does no harm."""


class Heard(msgspec.Struct, frozen=True):
    sender: int
    message: ElectionMessage


class PeerDown(msgspec.Struct, frozen=True):
    """This voter's process has ended: its connections broke, and its host refuses new ones. Comes after all that was
    heard of it. If it is not true after all, that costs time, and no lease."""

    voter: int


class Promised(msgspec.Struct, frozen=True):
    """This node's own replica takes up this promise, its own proposer's included.

    To be told in the same turn of the loop in which the replica takes the request up, not when the promise is durable:
    between the two, no heartbeat of an older reign may be answered.
    """

    number: int


class Won(msgspec.Struct, frozen=True):
    """The engine is coordinator under this number."""

    number: int


class LostReign(msgspec.Struct, frozen=True):
    """The engine's attempt, or its reign, has ended, and the caller has not begun another by itself."""

    number: int


class Reconfigured(msgspec.Struct, frozen=True):
    """Other voters decide from now on, and the engine has dropped its proposer. `me` may have become a voter."""

    me: int
    quorum: Quorum


class Ready(msgspec.Struct, frozen=True):
    """This node could not have led, and had no use for a campaign; now it can."""


class StepAside(msgspec.Struct, frozen=True):
    """Let another lead: this node is about to stop."""

    to: int | None


class Advanced(msgspec.Struct, frozen=True):
    """This node's log has come this far: what heartbeats say from now on, if it leads."""

    end: int


class Listeners(msgspec.Struct, frozen=True):
    """The learners that this node knows: they hear the heartbeats beside the voters."""

    nodes: tuple[int, ...]


ElectionEvent = (
    Tick | Heard | PeerDown | Promised | Won | LostReign | Ready | Reconfigured | StepAside | Advanced | Listeners
)

# -- effects ---------------------------------------------------------------------------------------------------------


class Tell(msgspec.Struct, frozen=True):
    to: int
    message: ElectionMessage


class Campaign(msgspec.Struct, frozen=True):
    """Have the engine elected; tell `Won` or `LostReign`. The number must be larger than all the engine knows, and than
    `Election.number`: of a leader, a follower may have got nothing but heartbeats."""


class Resign(msgspec.Struct, frozen=True):
    """Have the engine stop leading, or trying to (`Demote`). Nothing need be told back."""


class LeaderChanged(msgspec.Struct, frozen=True):
    """The leader changed, as far as this node believes: no proof. `leader` is None if it knows of nobody."""

    leader: int | None
    number: int
    """The largest proposal number under which a leader was heard of."""


class WakeAt(msgspec.Struct, frozen=True):
    """Tell `Tick` at this time, monotonic seconds; replaces the one before. Infinite: there is nothing to wait for."""

    at_s: float


ElectionEffect = Tell | Campaign | Resign | LeaderChanged | WakeAt
