"""Invariants: statements that always hold, each in a class that notices when it does not.

A class says what it looks at, and is called for nothing else: `watches` names effects, `sends` and `hears` messages,
`lands` records that reach a disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tidelog.replication.paxos.events import Effect
from tidelog.replication.paxos.messages import Message
from tidelog.replication.paxos.state import Record
from tidelog.sim.paxos.truth import Truth, Violation

if TYPE_CHECKING:
    from tidelog.sim.paxos.sim_node import SimNode


class Invariant:
    """A statement that always holds."""

    name: ClassVar[str]
    watches: ClassVar[tuple[type[Effect], ...]] = ()
    sends: ClassVar[tuple[type[Message], ...]] = ()
    hears: ClassVar[tuple[type[Message], ...]] = ()
    lands: ClassVar[tuple[type[Record], ...]] = ()

    def __init__(self, truth: Truth) -> None:
        self.truth = truth

    def check(self, node: SimNode, effect: Effect) -> None:
        """Judges what a node is about to do."""

    def sent(self, node: SimNode, message: Message) -> None:
        """Judges what a node is about to say."""

    def heard(self, node: SimNode, sender: int, message: Message) -> None:
        """Takes note of what a node is about to be told."""

    def landed(self, node: SimNode, record: Record) -> None:
        """Judges what has just become durable."""

    def at_end(self) -> None:
        """Judges the disks that the run leaves."""

    def require(self, holds: bool, *what: object) -> None:
        if not holds:
            raise Violation(f"{self.name}: {', '.join(map(str, what))}")
