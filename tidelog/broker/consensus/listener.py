"""The listener of a log, which is told what the log agrees on."""

from __future__ import annotations

from typing import Protocol

from tidelog.replication.paxos.voters import VoterSet


class LeaderListener(Protocol):
    """The part of a broker that acts when it leads a log."""

    def leading(self, number: int) -> None:
        """Hears that this broker leads under `number`; everything agreed on before is applied."""

    def deposed(self) -> None:
        """Hears that it leads no more."""

    def leader_changed(self, node_id: int | None) -> None:
        """Hears which node leads, as far as this broker knows; None if nobody is known to."""


class LogListener(Protocol):
    """The state machine of a log."""

    def applied(self, payload: bytes, offset: int, position: int) -> None:
        """Takes a chosen entry; each comes once, in order. `position` is the log's, `offset` the first that the entry
        takes."""

    def voters_applied(self, voters: VoterSet, position: int) -> None:
        """Hears that these voters are in force from now on, by their value at `position`."""

    def halted(self) -> None:
        """Hears that the disk has failed: nothing is stored, answered or applied here any more."""

    def lacks_snapshot(self) -> None:
        """Hears that the log goes on behind what was delivered: a snapshot that reaches `Delivery.needs_snapshot` has
        to be installed (`ElectedLog.install`)."""
