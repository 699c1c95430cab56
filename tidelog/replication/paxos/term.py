"""A proposer's term: its node, and the quorum that decides.

A term asks one quorum from beginning to end: a majority of the voters in force, as far as its node has applied the log,
and of all voter sets in VOTERS values that may be chosen (`Joint`). To *write* takes all of these. To find out which
values may have been chosen takes less: nothing is chosen at a position without a majority of the voters in force
*there*, whatever other nodes were asked. The proof is in docs/replication-paxos.md ("Changing the voters").
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.replication.paxos.events import VotersFound
from tidelog.replication.paxos.numbers import NO_NUMBER
from tidelog.replication.paxos.state import Value
from tidelog.replication.quorum import Quorum, parts_of


class Term(NamedTuple):
    """The node, proposal quorum and known voters of one proposer, from its promises to its last write."""

    node: int
    quorum: Quorum
    """The quorum that promises and accepts: `in_force`, and all voters that may follow them."""
    in_force: Quorum
    voters_position: int = -1
    """The position of the VOTERS value that `in_force` comes from; -1 if there is none."""
    settling: tuple[VotersFound, ...] = ()
    """VOTERS values that are not applied, and whose majorities `quorum` includes."""
    voters_since: int = NO_NUMBER
    """VOTERS values that were first proposed under a smaller number than this do not count
    (`StoredLog.voters_since`)."""
    is_union: bool = False
    """True if the quorum is all that remains of the log's voters: values that none of its members reports are
    given up."""
    lost: frozenset[int] = frozenset()
    """Members whose disks have lost their votes, so that no node answers under these ids any more. The term does not
    wait for them; the quorums stay the same."""

    def deciders(self, position: int) -> tuple[Quorum, ...]:
        """Returns the quorums that may have decided at this position; if there are several, any one of them may
        have."""
        # Up to the first VOTERS found open, only the voters in force have decided. So a voter that is just being added
        # cannot hold up, by what it has lost, those who never needed it. Behind them any set may be in force, and may
        # have decided alone: none speaks for another.
        first_open = min((open_voters.position for open_voters in self.settling), default=position)
        return (self.in_force,) if position <= first_open else parts_of(self.quorum)

    def names_new_voters(self, position: int, value: Value) -> bool:
        """Returns True if this is a VOTERS value whose voters are not part of this term's quorum."""
        # They may be chosen, and decide by themselves already, so nothing may be written before they are asked, too.
        return value.names_voters(self.voters_since) and VotersFound(position, value) not in self.settling
