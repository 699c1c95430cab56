"""The messages between the nodes of one log.

A message that carries a value with a payload (a `WriteRequest`, unless it is by name alone; the slots of
`PromiseResponse` and `LearnResponse` that are not faulty) travels with the bytes behind it; `Learned` never does. Every
request may be lost, repeated, late and out of order, and is answered the same way each time, unless its promise has
changed and the answer says so.

| Mesos | here | why |
|---|---|---|
| PromiseRequest, two forms | `PromiseRequest` | one promise for all positions; the answer tells what is open |
| PromiseResponse | `PromiseResponse` | with the learned prefix, and with faulty slots as what they are |
| WriteRequest, WriteResponse | the same | a write to a learned slot is answered, with what was learned |
| LearnedMessage | `Learned` | a hint without payload; who has not got the value asks for it |
| (catch-up by Paxos rounds) | `LearnRequest`, `LearnResponse` | what is chosen is copied, which demotes nobody |
| RecoverRequest, RecoverResponse | the same | with the cluster's id, incarnations and founders |
"""

from __future__ import annotations

from enum import Enum

import msgspec

from tidelog.model.wire_numbers import Int64, Natural
from tidelog.replication.paxos.numbers import NO_NUMBER
from tidelog.replication.paxos.state import Prefix, Slot, Status, Value

POSITION_MAX = 2**63 - 1


class Reply(Enum):
    """The verdict of an acceptor on a request."""

    ACCEPT = "accept"
    REJECT = "reject"
    """A larger number is known here. The outcome of a rejected write is unknown, not "not written"."""
    IGNORED = "ignored"
    """The node is no voter: nothing was promised or accepted, and it may be asked again."""
    LEARNED = "learned"
    """The value at the position is chosen already."""
    STORAGE_ERROR = "storage_error"
    """The disk failed; nothing was promised or accepted."""


class PromiseRequest(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Asks an acceptor to accept nothing smaller than `number` any more, at any position, and to report its slots from
    `position` on."""

    number: Natural
    position: Natural


class PromiseResponse(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The answer to a `PromiseRequest`. Like every ACCEPT, the promise is durable before it is sent."""

    reply: Reply
    number: Natural
    """The number of the request."""
    highest: Natural = NO_NUMBER
    """The largest number known here, in a REJECT."""
    learned_end: Natural = 0
    """All positions below are learned here, or truncated."""
    # Faulty ones, too: what is left out here counts as never accepted.
    slots: tuple[Slot, ...] = ()
    """Every slot from max(`position`, `learned_end`) on."""


class WriteRequest(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Asks an acceptor to accept this value at this position."""

    number: Natural
    position: Natural
    value: Value
    is_lazy: bool = False
    """True if the answer need not wait for the disk."""
    is_named: bool = False
    """True if the value is to be accepted by its name alone, as faulty, since nobody has its payload."""


class WriteResponse(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The answer to a `WriteRequest`. An ACCEPT is durable before it is sent, unless the request is lazy."""

    reply: Reply
    number: Natural
    position: Natural
    highest: Natural = NO_NUMBER
    """The largest number known here, in a REJECT."""
    # Another value than the proposed one shows the proposer that a larger number has won.
    value: Value | None = None
    """The chosen value, in a LEARNED; None if the log begins behind the position."""


class Learned(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The notice that this value is chosen. It is neither acknowledged nor repeated."""

    position: Natural
    value: Value


class LearnRequest(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Asks for the learned slots from `position` on, and before `end`."""

    position: Natural
    end: Natural = POSITION_MAX


class LearnResponse(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The answer to a `LearnRequest`: some of the slots, lowest positions first."""

    floor: Prefix
    """The floor of the sender's log. If the asking node is behind it, it goes on from there."""
    slots: tuple[Slot, ...]
    learned_end: Natural
    """The end of the sender's learned prefix. If it is beyond the slots that came, there is more to ask for."""


class RecoverRequest(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Asks for a node's status, incarnation and founders."""


class RecoverResponse(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The answer to a `RecoverRequest`."""

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
