"""The listener of a log, which is told what the log agrees on."""

from __future__ import annotations

from typing import Protocol

from tidelog.replication.paxos.voters import VoterSet


class LeaderListener(Protocol):
    """The part of a broker that acts when it leads a log."""

    def leading(self, number: int) -> None:
        """This broker leads; everything agreed on before is applied."""

    def deposed(self) -> None:
        """It leads no more."""

    def leader_changed(self, node_id: int | None) -> None:
        """The leader is this one, as far as this broker knows."""


class LogListener(Protocol):
    """The state machine of a log."""

    def applied(self, payload: bytes, offset: int, position: int) -> None:
        """An agreed entry, each once, in order. `position` is the log's, `offset` the first that the entry takes."""

    def voters_applied(self, voters: VoterSet, position: int) -> None:
        """These vote on this log from now on."""

    def halted(self) -> None:
        """The disk has failed: nothing is stored, answered or applied here any more."""

    def lacks_snapshot(self) -> None:
        """The log goes on behind what was delivered: `install` a snapshot that reaches `Delivery.needs_snapshot`."""
