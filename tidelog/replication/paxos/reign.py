"""The terms of a proposer: its node, and the quorum that decides.

A reign asks one quorum from beginning to end: a majority of the voters in force, as far as its node has applied the
log, and of all who may follow them by VOTERS found open (`Joint`). What is *written* needs all of these. What may have
been chosen before needs less to find out: whoever was asked besides, nothing is chosen at a position without a majority
of the voters in force *there*. Up to the first VOTERS found open, these are the ones that the node goes by, and if each
majority of them has somebody who accepted nothing above some number, it does not matter what the others would say. So a
voter that is only being added cannot hold up, by what it has lost, those who never needed it. Behind these VOTERS it is
unknown which set is in force, and any may have decided alone: each has to be asked, and none is spoken for by another.
The proof is in docs/replication-paxos.md ("Changing the voters").
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.replication.paxos.events import VotersFound
from tidelog.replication.paxos.numbers import NO_NUMBER
from tidelog.replication.paxos.state import Value
from tidelog.replication.quorum import Quorum, parts_of


class Reign(NamedTuple):
    """The terms of one proposer, from its promises to its last write."""

    node: int
    quorum: Quorum
    """The quorum that promises and accepts: `in_force`, and all voters who may follow them."""
    in_force: Quorum
    voters_position: int = -1
    """The position of the VOTERS value that `in_force` comes from; -1 if there is none."""
    settling: tuple[VotersFound, ...] = ()
    """VOTERS that are not applied, and whose quorums it includes all the same."""
    voters_since: int = NO_NUMBER
    """The same as `StoredLog.voters_since`."""
    is_union: bool = False
    """The quorum is all that is left of the log: what none of them shows is given up."""
    lost: frozenset[int] = frozenset()
    """Members whose disks have lost their votes: nobody answers under these ids any more. That is no more than a reason
    not to wait for them; who decides stays the same."""

    def deciders(self, position: int) -> tuple[Quorum, ...]:
        """Returns the quorums of which one decides at this position; where there are several, any of them may."""
        first = min((found.position for found in self.settling), default=position)
        return (self.in_force,) if position <= first else parts_of(self.quorum)

    def is_news(self, position: int, value: Value) -> bool:
        """Is this about voters who are not asked? If they are chosen, every quorum shows them so."""
        return value.names_voters(self.voters_since) and VotersFound(position, value) not in self.settling
