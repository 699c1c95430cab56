"""The listeners of a log, which handle its chosen entries and changes of its leader."""

from __future__ import annotations

from typing import Protocol

from tidelog.replication.paxos.voters import VoterSet


class LeaderListener(Protocol):
    """The part of a broker that acts when it leads a log."""

    def leading(self, number: int) -> None:
        """Handles that this broker leads the log under ballot number `number`, with all earlier entries applied."""

    def deposed(self) -> None:
        """Handles that this broker no longer leads the log."""

    def leader_changed(self, node_id: int | None) -> None:
        """Handles a change of the log's leader, as far as this broker knows; None if no leader is known."""


class LogListener(Protocol):
    """The state machine of a log, which is called with its chosen entries."""

    def applied(self, payload: bytes, offset: int, position: int) -> None:
        """Applies a chosen entry; each is passed once, in order. `position` is that of the log, `offset` the first that
        the entry takes."""

    def voters_applied(self, voters: VoterSet, position: int) -> None:
        """Handles that these voters are in force from now on, named by the value at `position`."""

    def halted(self) -> None:
        """Handles a failure of the disk: nothing is stored, answered or applied any more."""

    def lacks_snapshot(self) -> None:
        """Handles a gap between the delivered entries and the log's beginning: a snapshot that reaches
        `Delivery.needs_snapshot` has to be installed (`ElectedLog.install`)."""
