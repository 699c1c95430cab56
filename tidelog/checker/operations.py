"""The operations of which a history consists, and their form in lines of JSON.

As in Jepsen, an operation has two lines: it is invoked, and it completes: `ok` means that it surely happened, `fail`
that it surely did not, `info` that nobody knows. An operation that never completes is `info`, too. A *key* is one
partition, written `topic-0`; each value is sent to a key once in a run.

    {"index":0,"time":0.1,"process":"p0","type":"invoke","f":"send","value":[["send","t-0",null,"a"]]}
    {"index":1,"time":0.2,"process":"p0","type":"ok","f":"send","value":[["send","t-0",0,"a"]],"invocation":0}

| f | value | |
|---|---|---|
| send | sends | a batch of one or more records; of one key, it is all or nothing and in one piece |
| poll | polls | the records that a reader got; on `invoke` nothing |
| txn | sends and polls | all or nothing over several keys |
| assign, subscribe | keys; topics | what the process reads from now on |
| seek | keys | the process continues to read these at other offsets |
| crash | | the process has no read positions any more |

The other lines are facts about the system, one line each, with the type `info`:

| f | value | |
|---|---|---|
| fault | names | something was broken |
| loss | keys | memory was lost: acknowledgements other than `fsynced`, and whatever was seen of these keys, are void |
| damage | damages | bytes of these offsets were damaged on the disk |
| prefix | prefixes | a deletion of old records was requested, or acknowledged |
| gone | keys | every copy was destroyed on purpose |
| unread | unreads | a log went on behind batches that nobody could read: it counts a repeat of one as new |
| repeats | | the network may deliver a request twice |
| holes | keys | these acknowledge records that reads from the leader may lack yet (`commit.order=key` or `none`) |
| view | views | a partition at rest, read from start to end |
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

Type = Literal["invoke", "ok", "info", "fail"]
Function = Literal[
    "send", "poll", "txn", "assign", "subscribe", "seek", "crash",
    "fault", "loss", "damage", "prefix", "gone", "unread", "repeats", "holes", "view",
]  # fmt: skip
Durability = Literal["fsynced", "replicated", "leader", "none"]
Guarantee = Literal["sequence", "key", "none"]
"""The guarantee of an acknowledged send for its batches: `sequence`, once and in order (idempotent producer); `key`,
once (idempotency key); `none`, once and in order as long as the sender waits for each answer."""


class Send(msgspec.Struct, frozen=True, array_like=True, tag="send"):
    """A record that is sent: its partition, its offset once that is known, and its value."""

    key: str
    offset: int | None
    value: str


class Poll(msgspec.Struct, frozen=True, array_like=True, tag="poll"):
    """The records of a poll, by partition, as (offset, value) in the order received. `ends` are the high watermarks
    that came with them."""

    records: dict[str, list[tuple[int, str]]]
    ends: dict[str, int] = {}


class View(msgspec.Struct, frozen=True, array_like=True, tag="view"):
    """The whole content of a partition at rest. `end` is -1 if only the high watermark is known."""

    key: str
    start: int
    high_watermark: int
    end: int
    records: list[tuple[int, str]]
    damaged: list[int] = []
    """Offsets whose reads failed as damaged."""
    is_sparse: bool = False
    """True if some offsets may belong to no record on any replica (`commit.protocol=paxos`)."""


class Damage(msgspec.Struct, frozen=True, array_like=True, tag="damage"):
    """Offsets whose bytes were damaged on purpose, on the disk."""

    key: str
    offsets: list[int]


class Unread(msgspec.Struct, frozen=True, array_like=True, tag="unread"):
    """Offsets of batches that could not be read when the log went on behind them, so that it does not know their
    sequence numbers."""

    key: str
    offsets: list[int]


class Prefix(msgspec.Struct, frozen=True, array_like=True, tag="prefix"):
    """The range in which a log may start after deletions: at `promised` at the earliest, at `requested` at the
    latest."""

    key: str
    requested: int
    promised: int


Value = Send | Poll | View | Damage | Unread | Prefix | str


class Op(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of a history. Lines come in the order of `index`, in which things happened; `time` is in seconds."""

    index: int
    time: float
    process: str
    type: Type
    f: Function
    value: list[Value] = []
    invocation: int | None = None
    """Index of the invocation that this line completes. If it is None in a completion, that completes the newest
    invocation of its process. Always None in an invocation."""
    durability: Durability = "fsynced"
    """Durability that the acknowledgement of a send promised, if it is `ok`."""
    guarantee: Guarantee = "sequence"
    """The guarantee of a send, given with its invocation."""
    epoch: int = -1
    """Leader epoch of the broker that answered; -1 if it is not known."""
    replica: int | None = None
    """Node whose own copy was read; None for the leader's."""
    rebalanced: list[str] = []
    """Partitions that the process was assigned or lost while it polled."""
    error: str = ""


_DECODER = msgspec.json.Decoder(Op)


def encode(operations: Iterable[Op]) -> bytes:
    """Returns a history as lines of JSON."""
    return msgspec.json.Encoder().encode_lines(operations)


def decode(data: bytes) -> list[Op]:
    """Returns the history from lines of JSON. Raises `ValueError` that names a bad line."""
    operations: list[Op] = []
    for number, line in enumerate(data.splitlines(), 1):
        if line:
            try:
                operations.append(_DECODER.decode(line))
            except msgspec.DecodeError as error:
                raise ValueError(f"line {number} is no operation: {error}") from None
    return operations
