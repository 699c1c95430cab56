"""Actions of a plan on a cluster: things that users, operators and bad luck do.

An action that does not fit when its time comes (a crash of what is down, an append without a coordinator) does nothing.
`pick` chooses among what is there at that time, so that a plan keeps its meaning when the actions before it are
dropped. Times are ticks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from tidelog.replication.paxos.events import (
    Applied,
    Chosen,
    Effect,
    Elected,
    Lost,
    Persist,
    Proposed,
    Send,
    VotersFound,
)
from tidelog.replication.paxos.messages import PromiseRequest, PromiseResponse, Reply, WriteRequest, WriteResponse
from tidelog.replication.paxos.state import Kind, Metadata, Prefix, Slot, Status


class ElectNode(msgspec.Struct, frozen=True, tag=True):
    """A node is told to become coordinator; it may go on trying for a while."""

    node: int


class AppendSome(msgspec.Struct, frozen=True, tag=True):
    """A client sends batches to one of those that call themselves coordinator."""

    pick: int
    batches: int
    records: int


class TruncateSome(msgspec.Struct, frozen=True, tag=True):
    """Retention: drops a part of what a coordinator has applied."""

    pick: int
    share: float


class DemoteOne(msgspec.Struct, frozen=True, tag=True):
    """A coordinator's caller gives up, with whatever is under way."""

    pick: int


class ChangeVoters(msgspec.Struct, frozen=True, tag=True):
    """A coordinator is told to change the voters: by one more, one less, or one in the place of another."""

    pick: int
    kind: str
    """add, remove or replace."""
    choice: int


class CrashNode(msgspec.Struct, frozen=True, tag=True):
    """The machine stops; what was not durable may be gone."""

    node: int
    ticks: int


class CrashAfter(msgspec.Struct, frozen=True, tag=True):
    """The next node that says or writes this stops right after, before it is durable."""

    trigger: str
    """A name of `TRIGGERS`."""
    ticks: int


class CrashAll(msgspec.Struct, frozen=True, tag=True):
    """The power fails everywhere."""

    ticks: int


class WipeNode(msgspec.Struct, frozen=True, tag=True):
    """The machine stops and comes back with an empty disk; perhaps somebody takes it for a new one and founds."""

    node: int
    ticks: int
    is_founding: bool


class FailStore(msgspec.Struct, frozen=True, tag=True):
    """An fsync fails; the node halts, and is started again later."""

    node: int
    ticks: int


class DamageSlot(msgspec.Struct, frozen=True, tag=True):
    """A payload on a disk becomes unreadable; a running node notices at once, another when it starts."""

    node: int
    pick: int


class LoseName(msgspec.Struct, frozen=True, tag=True):
    """The machine stops; when it starts, a slot has lost its value with its name."""

    node: int
    pick: int
    ticks: int


class GiveUpVotes(msgspec.Struct, frozen=True, tag=True):
    """A node is told that these voters have lost their votes; rightly or not, for nothing may depend on it."""

    node: int
    voters: tuple[int, ...]


class CutLink(msgspec.Struct, frozen=True, tag=True):
    """Cuts one direction of one link for a while."""

    source: int
    target: int
    ticks: int


class IsolateNode(msgspec.Struct, frozen=True, tag=True):
    """All links of a node are dead for a while: those towards it, from it, or both."""

    node: int
    ticks: int
    inbound: bool
    outbound: bool


class Connect(msgspec.Struct, frozen=True, tag=True):
    """Only these links work, each in one direction, until the next time or the end."""

    links: tuple[tuple[int, int], ...]


Action = (
    ElectNode
    | AppendSome
    | TruncateSome
    | DemoteOne
    | ChangeVoters
    | CrashNode
    | CrashAfter
    | CrashAll
    | WipeNode
    | FailStore
    | DamageSlot
    | LoseName
    | GiveUpVotes
    | CutLink
    | IsolateNode
    | Connect
)


def _says(effect: Effect, kind: type[PromiseResponse | WriteResponse]) -> bool:
    return isinstance(effect, Send) and isinstance(effect.message, kind) and effect.message.reply is Reply.ACCEPT


def _asks(effect: Effect, kind: type[PromiseRequest | WriteRequest]) -> bool:
    return isinstance(effect, Send) and isinstance(effect.message, kind)


def _proposes_voters(effect: Effect) -> bool:
    return isinstance(effect, Proposed) and effect.value.kind is Kind.VOTERS


def _accepts_voters(effect: Effect) -> bool:
    return isinstance(effect, Persist) and any(
        isinstance(record, Slot) and record.value.kind is Kind.VOTERS for record in effect.records
    )


def _applies_voters(effect: Effect) -> bool:
    return isinstance(effect, Applied) and effect.value.kind is Kind.VOTERS


def _writes(effect: Effect, kind: type[Slot | Prefix]) -> bool:
    return isinstance(effect, Persist) and any(isinstance(record, kind) for record in effect.records)


def _admits(effect: Effect) -> bool:
    """The metadata of a replica that is about to vote: it has used a number, and promised it."""
    return isinstance(effect, Persist) and any(
        isinstance(record, Metadata) and record.status is Status.VOTING and record.promised == record.issued > 0
        for record in effect.records
    )


TRIGGERS: Mapping[str, Callable[[Effect], bool]] = {
    "asks for promises": lambda effect: _asks(effect, PromiseRequest),
    "asks for a write": lambda effect: _asks(effect, WriteRequest),
    "promises": lambda effect: _says(effect, PromiseResponse),
    "accepts": lambda effect: _says(effect, WriteResponse),
    "writes a slot": lambda effect: _writes(effect, Slot),
    "begins later": lambda effect: _writes(effect, Prefix),
    "is about to vote": _admits,
}
VOTER_TRIGGERS: Mapping[str, Callable[[Effect], bool]] = {
    "is elected": lambda effect: isinstance(effect, Elected),
    "proposes voters": _proposes_voters,
    "accepts voters": _accepts_voters,
    "has voters chosen": lambda effect: isinstance(effect, Chosen) and effect.value.kind is Kind.VOTERS,
    "applies voters": _applies_voters,
    "finds voters": lambda effect: isinstance(effect, VotersFound),
    "is lost": lambda effect: isinstance(effect, Lost),
}
"""The steps of a change of voters."""
ALL_TRIGGERS = {**TRIGGERS, **VOTER_TRIGGERS}
