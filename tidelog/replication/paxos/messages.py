"""The messages between the nodes of one Paxos log.

A message that carries a value with a payload (a `WriteRequest`, unless it carries the digest alone; the slots of
`PromiseResponse` and `LearnResponse` that are not faulty) is followed by the payload's bytes; `Learned` never is. Every
request may be lost, repeated, late and out of order, and is answered the same way each time, unless the node's promise
has changed and the answer says so.

| Mesos | here | why | |---|---|---| | PromiseRequest, two forms | `PromiseRequest` | one promise for all positions; the
answer lists the open slots | | PromiseResponse | `PromiseResponse` | with the learned prefix, and with faulty slots
marked as such | | WriteRequest, WriteResponse | the same | a write to a learned slot is answered, with the learned
value | | LearnedMessage | `Learned` | a hint without payload; a node that lacks the payload asks for it | | (catch-up
by Paxos rounds) | `LearnRequest`, `LearnResponse` | chosen values are copied, which deposes no coordinator | |
RecoverRequest, RecoverResponse | the same | with the cluster's id, incarnations and founders |
"""

from __future__ import annotations

from enum import Enum

import msgspec

from tidelog.model.wire_numbers import Int64, Natural
from tidelog.replication.paxos.numbers import NO_NUMBER
from tidelog.replication.paxos.state import Prefix, Slot, Status, Value

POSITION_MAX = 2**63 - 1


class Reply(Enum):
    """An acceptor's answer to a promise or write request."""

    ACCEPT = "accept"
    REJECT = "reject"
    """This acceptor knows a larger proposal number. Whether a rejected write is chosen is unknown; it may be."""
    IGNORED = "ignored"
    """The node is no voter: nothing was promised or accepted, and the request may be repeated."""
    LEARNED = "learned"
    """The value at the position is chosen already."""
    STORAGE_ERROR = "storage_error"
    """The node's disk failed; nothing was promised or accepted."""


class PromiseRequest(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A request that the acceptor accept no value under a number smaller than `number` any more, at any position, and
    report its slots from `position` on (Paxos' phase 1)."""

    number: Natural
    position: Natural


class PromiseResponse(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The answer to a `PromiseRequest`. Like every ACCEPT, the promise is durable before it is sent."""

    reply: Reply
    number: Natural
    """The proposal number of the request."""
    highest: Natural = NO_NUMBER
    """The largest proposal number that the acceptor knows, in a REJECT."""
    learned_end: Natural = 0
    """The position below which the acceptor has learned or truncated everything."""
    # Faulty ones, too: what is left out here counts as never accepted.
    slots: tuple[Slot, ...] = ()
    """Every slot of the acceptor from max(`position`, `learned_end`) on; `position` is that of the request."""


class WriteRequest(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A request that an acceptor accept this value at this position (Paxos' phase 2)."""

    number: Natural
    position: Natural
    value: Value
    is_lazy: bool = False
    """True if the answer need not wait for the disk."""
    is_named: bool = False
    """True if the value is to be accepted by its digest alone, as faulty, since no node has its payload."""


class WriteResponse(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The answer to a `WriteRequest`. An ACCEPT is durable before it is sent, unless the request is lazy."""

    reply: Reply
    number: Natural
    position: Natural
    highest: Natural = NO_NUMBER
    """The largest proposal number that the acceptor knows, in a REJECT."""
    # Another value than the proposed one shows the proposer that a larger number has won.
    value: Value | None = None
    """The chosen value, in a LEARNED; None if the acceptor's log begins behind the position."""
    is_learned: bool = False
    """True in an ACCEPT if the acceptor has not accepted the value under this number, but knows that it is chosen,
    under whatever number."""


class Learned(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The notice that this value is chosen. It is neither acknowledged nor repeated."""

    position: Natural
    value: Value


class LearnRequest(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A request for the learned slots from `position` on, and before `end`."""

    position: Natural
    end: Natural = POSITION_MAX
    held: bytes = b""
    """A bitmap of the positions from `position` on, lowest bit first, that need not be told: the sender has learned
    them, above one that it has not."""

    def is_held(self, position: int) -> bool:
        """Returns True if the sender has learned this position, which is not below `self.position`."""
        byte, bit = divmod(position - self.position, 8)
        return byte < len(self.held) and bool(self.held[byte] >> bit & 1)


class LearnResponse(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The answer to a `LearnRequest`: some of the slots, lowest positions first."""

    floor: Prefix
    """The floor (the first position, and the state there) of the sender's log. A requesting node whose log ends before
    it continues from there."""
    slots: tuple[Slot, ...]
    learned_end: Natural
    """The end of the sender's learned prefix. If it is beyond the slots of this answer, there is more to request."""


class RecoverRequest(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A request for a node's status, incarnation and founders."""


class RecoverResponse(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The answer to a `RecoverRequest`: the node's status, incarnation, cluster and founders."""

    status: Status
    # It names the disk, where the sender's id names the node: a wiped disk answers under the same id.
    incarnation: str
    cluster_id: str
    founders: tuple[tuple[Int64, str], ...]


Message = (
    PromiseRequest
    | PromiseResponse
    | WriteRequest
    | WriteResponse
    | Learned
    | LearnRequest
    | LearnResponse
    | RecoverRequest
    | RecoverResponse
)
