"""Invariants of the simulated group, each in a class that checks it.

A class lists the types that it checks, and is called for no others: `watches` lists effects, `sends` and `hears` list
messages, `lands` lists records that become durable.
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
    """A statement that must hold at all times."""

    name: ClassVar[str]
    watches: ClassVar[tuple[type[Effect], ...]] = ()
    sends: ClassVar[tuple[type[Message], ...]] = ()
    hears: ClassVar[tuple[type[Message], ...]] = ()
    lands: ClassVar[tuple[type[Record], ...]] = ()

    def __init__(self, truth: Truth) -> None:
        self.truth = truth

    def check(self, node: SimNode, effect: Effect) -> None:
        """Checks an effect that a node is about to carry out. Raises `Violation`."""

    def sent(self, node: SimNode, message: Message) -> None:
        """Checks a message that a node is about to send. Raises `Violation`."""

    def heard(self, node: SimNode, sender: int, message: Message) -> None:
        """Records a message that a node is about to receive."""

    def landed(self, node: SimNode, record: Record) -> None:
        """Checks a record that has just become durable. Raises `Violation`."""

    def at_end(self) -> None:
        """Checks the state of the disks at the end of the run. Raises `Violation`."""

    def require(self, holds: bool, *what: object) -> None:
        if not holds:
            raise Violation(f"{self.name}: {', '.join(map(str, what))}")
