"""Voters whose disks are lost, and what is left without them: pure.

A voter is a disk. If its node answers from another one, the voter is gone with what it had promised, and will not come
back; the log can go on, and replace it, as long as the others are a majority. A voter that does not answer is not lost:
it may only be down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelog.broker.consensus.messages import QuorumDescribed
from tidelog.model.cluster import Voter
from tidelog.replication.paxos.voters import VoterSet


def lost_voters(voters: VoterSet, disks: Mapping[int, str], answers: Sequence[QuorumDescribed]) -> list[Voter]:
    """Returns the voters whose node has another disk by now, by these answers or by `disks` (incarnations by node)."""
    # A voter that nobody has seen counts as itself: it may only be down.
    incarnations = {answer.node_id: answer.incarnation for answer in answers} | dict(disks)
    return [voter for voter in voters.voters if incarnations.get(voter.node_id, voter.incarnation) != voter.incarnation]


def lacks_majority(voters: VoterSet, lost: Sequence[Voter]) -> bool:
    """Returns True if nothing can ever be decided again, whoever comes back."""
    # Half is no majority: two groups of that size could decide differently.
    return 2 * (len(voters.voters) - len(lost)) <= len(voters.voters)
