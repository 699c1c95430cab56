"""Decides which voters of a log have lost their disks, and whether the others are still a majority. Pure.

A voter is a disk. If its node answers from another disk, the voter is lost with its promises, and will not come back;
the log can go on, and replace it, as long as the others are a majority. A voter that does not answer is not lost: it
may only be down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelog.broker.consensus.messages import QuorumDescribed
from tidelog.model.cluster import Voter
from tidelog.replication.paxos.voters import VoterSet


def lost_voters(voters: VoterSet, disks: Mapping[int, str], answers: Sequence[QuorumDescribed]) -> list[Voter]:
    """Returns the voters whose node uses another disk by now, according to the answers or to `disks` (incarnations by
    node id)."""
    # A voter that nobody has seen counts as itself: it may only be down.
    incarnations = {answer.node_id: answer.incarnation for answer in answers} | dict(disks)
    return [voter for voter in voters.voters if incarnations.get(voter.node_id, voter.incarnation) != voter.incarnation]


def lacks_majority(voters: VoterSet, lost: Sequence[Voter]) -> bool:
    """Returns True if the voters that are not `lost` are no majority: the log can never decide anything again."""
    # Half is no majority: two groups of that size could decide differently.
    return 2 * (len(voters.voters) - len(lost)) <= len(voters.voters)
