"""Actions in the plan of a run: what users, operators and faults do to the simulated group.

An action that is impossible when its time comes (a crash of a node that is down, an append without a coordinator) does
nothing. `pick` is an index, modulo their number, into the objects that exist at that time, so that a plan keeps its
meaning when earlier actions are dropped. Times are ticks. A *coordinator* is the leader of the Paxos log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from tidelog.replication.paxos import events
from tidelog.replication.paxos.messages import PromiseRequest, PromiseResponse, Reply, WriteRequest, WriteResponse
from tidelog.replication.paxos.state import Kind, Metadata, Prefix, Slot, Status


class ElectNode(msgspec.Struct, frozen=True, tag=True):
    """An action that tells a node to become coordinator. It may try again for a while."""

    node: int


class AppendSome(msgspec.Struct, frozen=True, tag=True):
    """A client sends batches to a node that believes to be coordinator."""

    pick: int
    batches: int
    records: int


class TruncateSome(msgspec.Struct, frozen=True, tag=True):
    """Retention: a coordinator deletes a part of what it has applied."""

    pick: int
    share: float


class DemoteOne(msgspec.Struct, frozen=True, tag=True):
    """Makes a coordinator step down, with its proposals still open."""

    pick: int


class ChangeVoters(msgspec.Struct, frozen=True, tag=True):
    """An action that tells a coordinator to change the voters: add, remove or replace one."""

    pick: int
    kind: str
    """`add`, `remove` or `replace`."""
    choice: int


class CrashNode(msgspec.Struct, frozen=True, tag=True):
    """A machine crashes; writes that were not durable may be lost. It starts again after `ticks`."""

    node: int
    ticks: int


class CrashAfter(msgspec.Struct, frozen=True, tag=True):
    """An action that crashes the next node that sends or writes what the trigger names, right afterwards and before the
    write is durable."""

    trigger: str
    """Key of `ALL_TRIGGERS`."""
    ticks: int


class CrashAll(msgspec.Struct, frozen=True, tag=True):
    """A power failure that crashes all machines."""

    ticks: int


class WipeNode(msgspec.Struct, frozen=True, tag=True):
    """A machine crashes and comes back with an empty disk. If `is_founding`, an operator takes the disk for a new one
    and founds the group on it again."""

    node: int
    ticks: int
    is_founding: bool


class FailStore(msgspec.Struct, frozen=True, tag=True):
    """An fsync fails. The node halts, and is started again after `ticks`."""

    node: int
    ticks: int


class DamageSlot(msgspec.Struct, frozen=True, tag=True):
    """A payload on a node's disk becomes unreadable. A running node notices it at once, a stopped one at its start."""

    node: int
    pick: int


class LoseName(msgspec.Struct, frozen=True, tag=True):
    """A machine crashes; at its next start a slot's payload is unreadable, and so is the record of which value it
    was."""

    node: int
    pick: int
    ticks: int


class GiveUpVotes(msgspec.Struct, frozen=True, tag=True):
    """An action that tells a node that these voters have lost their votes, rightly or not: safety must not depend on
    it."""

    node: int
    voters: tuple[int, ...]


class CutLink(msgspec.Struct, frozen=True, tag=True):
    """An action that cuts one direction of the link between two nodes for some ticks."""

    source: int
    target: int
    ticks: int


class IsolateNode(msgspec.Struct, frozen=True, tag=True):
    """An action that cuts all links to a node, from it, or both, for some ticks."""

    node: int
    ticks: int
    inbound: bool
    outbound: bool


class Connect(msgspec.Struct, frozen=True, tag=True):
    """An action that restricts the network to these links, each in one direction, until the next `Connect` or the end
    of the run."""

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


def _says(effect: events.Effect, kind: type[PromiseResponse | WriteResponse]) -> bool:
    return isinstance(effect, events.Send) and isinstance(effect.message, kind) and effect.message.reply is Reply.ACCEPT


def _asks(effect: events.Effect, kind: type[PromiseRequest | WriteRequest]) -> bool:
    return isinstance(effect, events.Send) and isinstance(effect.message, kind)


def _proposes_voters(effect: events.Effect) -> bool:
    return isinstance(effect, events.Proposed) and effect.value.kind is Kind.VOTERS


def _accepts_voters(effect: events.Effect) -> bool:
    return isinstance(effect, events.Persist) and any(
        isinstance(record, Slot) and record.value.kind is Kind.VOTERS for record in effect.records
    )


def _applies_voters(effect: events.Effect) -> bool:
    return isinstance(effect, events.Applied) and effect.value.kind is Kind.VOTERS


def _writes(effect: events.Effect, kind: type[Slot | Prefix]) -> bool:
    return isinstance(effect, events.Persist) and any(isinstance(record, kind) for record in effect.records)


def _admits(effect: events.Effect) -> bool:
    """Returns True if the effect writes the record by which a replica with a new disk becomes a voter: status VOTING,
    and a promise to the ballot that the replica itself issued to rejoin."""
    return isinstance(effect, events.Persist) and any(
        isinstance(record, Metadata) and record.status is Status.VOTING and record.promised == record.issued > 0
        for record in effect.records
    )


TRIGGERS: Mapping[str, Callable[[events.Effect], bool]] = {
    "asks for promises": lambda effect: _asks(effect, PromiseRequest),
    "asks for a write": lambda effect: _asks(effect, WriteRequest),
    "promises": lambda effect: _says(effect, PromiseResponse),
    "accepts": lambda effect: _says(effect, WriteResponse),
    "writes a slot": lambda effect: _writes(effect, Slot),
    "begins later": lambda effect: _writes(effect, Prefix),
    "is about to vote": _admits,
}
VOTER_TRIGGERS: Mapping[str, Callable[[events.Effect], bool]] = {
    "is elected": lambda effect: isinstance(effect, events.Elected),
    "proposes voters": _proposes_voters,
    "accepts voters": _accepts_voters,
    "has voters chosen": lambda effect: isinstance(effect, events.Chosen) and effect.value.kind is Kind.VOTERS,
    "applies voters": _applies_voters,
    "finds voters": lambda effect: isinstance(effect, events.VotersFound),
    "is lost": lambda effect: isinstance(effect, events.Lost),
}
"""Triggers at the steps of a change of voters."""
ALL_TRIGGERS = {**TRIGGERS, **VOTER_TRIGGERS}
