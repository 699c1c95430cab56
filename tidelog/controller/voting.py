"""The voters that the metadata log should have: a pure policy, asked at each tick of the active controller.

It wants three voters, or as many as the cluster was founded with if those were more, and changes the set by one voter
at a time. In this order:

1. A voter that can never come back goes: its disk was replaced, or its broker was removed.
2. Voters are added until there are as many as wanted. Two tolerate no failure, just as one does, and twice as many
   disks can fail; so the first step from an odd number is taken only if a candidate for the next one is there as well.
3. A voter that was silent for `controller.voter.replace.ms` goes, if a candidate can replace it.

Nothing changes while the live voters are no majority. Those that go are none of the live ones, so the live voters are a
majority of the set after a change, too.
Candidates are live brokers that are no voters and have applied nearly all of the metadata log; of these, one from the
rack with the fewest voters, the lowest node id first.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.controller.commands import AssignVoter
from tidelog.controller.decide_brokers import is_voting
from tidelog.controller.sessions import Sessions
from tidelog.model.cluster import BrokerInfo, ClusterImage, Voter
from tidelog.model.ids import NodeId

VOTERS_WANTED = 3
BEHIND_RECORDS_MAX = 1_000
"""A candidate that is further behind the end of the metadata log has yet to catch up."""


@dataclass(frozen=True, slots=True)
class ChangeVoters:
    """The present voters are to be one more, or one (by its voter id) less."""

    add: Voter | None = None
    remove: int | None = None


def next_step(
    image: ClusterImage, sessions: Sessions, now_s: float, *, replace_ms: int
) -> ChangeVoters | AssignVoter | None:
    """Returns the next change of voters, or None if nothing is to change."""
    if not _can_decide(image):
        return None
    lost = next((voter for voter in image.voters if _is_lost(image, voter)), None)
    if lost is not None:
        return ChangeVoters(remove=lost.voter_id)
    candidates = _candidates(image, sessions)
    missing = max(VOTERS_WANTED, image.voters_founded) - len(image.voters)
    needed = 1 if len(image.voters) % 2 == 0 else 2
    if missing > 0 and len(candidates) >= min(needed, missing):
        return _with(image, candidates[0])
    if missing == 0 and candidates:
        silent = [voter for voter in image.voters if sessions.silent_ms(voter.node_id, now_s) >= replace_ms]
        gone = next((voter for voter in silent if not is_voting(image, voter.voter_id)), None)
        if gone is not None:
            return ChangeVoters(remove=gone.voter_id)
    return None


def _is_lost(image: ClusterImage, voter: Voter) -> bool:
    """It can never come back. (A founder that has yet to register still may.)"""
    broker = image.brokers.get(NodeId(voter.node_id))
    return voter.voter_id in image.voters_leaving or (broker is not None and broker.storage != voter.incarnation)


def _can_decide(image: ClusterImage) -> bool:
    live = [voter for voter in image.voters if is_voting(image, voter.voter_id)]
    return len(live) > len(image.voters) // 2


def _with(image: ClusterImage, broker: BrokerInfo) -> ChangeVoters | AssignVoter:
    """A disk gets its id first, and a new one if it was a voter before."""
    if broker.voter_id < image.voters_end:
        return AssignVoter(broker.node_id, broker.storage)
    return ChangeVoters(add=Voter(broker.voter_id, broker.node_id, broker.storage, broker.peer_host, broker.peer_port))


def _candidates(image: ClusterImage, sessions: Sessions) -> list[BrokerInfo]:
    """The best one first."""
    voting = [voter.node_id for voter in image.voters]
    racks = [broker.rack for broker in image.brokers.values() if broker.node_id in voting]
    found = []
    for broker in image.live_brokers:
        session = sessions.of(broker.node_id)
        if broker.node_id in voting or session is None or session.position < image.position - BEHIND_RECORDS_MAX:
            continue
        found.append(broker)
    return sorted(found, key=lambda broker: (racks.count(broker.rack), broker.node_id))
