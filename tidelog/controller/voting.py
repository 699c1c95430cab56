"""The policy for the voters of the metadata log, evaluated at each tick of the active controller. Pure.

It wants three voters, or as many as the cluster was founded with if those were more, and changes the set by one voter
at a time. In this order:

1. A voter that can never come back is removed: its disk was replaced, or its broker was removed.
2. Voters are added up to the wanted number; from an odd number only if there are candidates for two steps.
3. A voter that was silent for `controller.voter.replace.ms` is removed, if a candidate can replace it.

Nothing changes while the live voters are no majority. Only voters that are not live are removed, so the live voters are
a majority of the set after a change, too. Candidates are live brokers that are no voters and have applied nearly all of
the metadata log; of these, one from the rack with the fewest voters, the lowest node id first.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.controller.commands import AssignVoter
from tidelog.controller.decide_brokers import is_voting
from tidelog.controller.sessions import Sessions
from tidelog.model.cluster import BrokerInfo, ClusterImage, Voter
from tidelog.model.ids import NodeId

VOTERS_TARGET = 3
BEHIND_RECORDS_MAX = 1_000
"""The most records by which a candidate may be behind the end of the metadata log."""


@dataclass(frozen=True, slots=True)
class ChangeVoters:
    """A change of the metadata log's voters: one is added, or one is removed by its voter id."""

    add: Voter | None = None
    remove: int | None = None


def next_step(
    image: ClusterImage, sessions: Sessions, now_s: float, *, replace_ms: int
) -> ChangeVoters | AssignVoter | None:
    """Returns the next change of voters, or the assignment of a voter id that it needs first; None if nothing is to
    change."""
    # A change of voters is itself a value that the present voters must choose.
    if not _can_decide(image):
        return None
    lost = next((voter for voter in image.voters if _is_lost(image, voter)), None)
    # A vote that nobody casts only makes majorities harder to come by, so it goes before anybody is added.
    if lost is not None:
        return ChangeVoters(remove=lost.voter_id)
    candidates = _candidates(image, sessions)
    missing = max(VOTERS_TARGET, image.voters_founded) - len(image.voters)
    # Two voters tolerate no failure, just as one does, and twice as many disks can fail; four are to three as two to
    # one. So an even number is only passed through, on the way to the next odd one.
    needed = 1 if len(image.voters) % 2 == 0 else 2
    if missing > 0 and len(candidates) >= min(needed, missing):
        return _step_to_add(image, candidates[0])
    # The candidate is added by a later step: without one at hand, removing a silent voter only makes the set smaller.
    if missing == 0 and candidates:
        silent = [voter for voter in image.voters if sessions.silent_ms(voter.node_id, now_s) >= replace_ms]
        # No live voter ever goes, so the live ones are a majority of the smaller set as well.
        gone = next((voter for voter in silent if not is_voting(image, voter.voter_id)), None)
        if gone is not None:
            return ChangeVoters(remove=gone.voter_id)
    return None


def _is_lost(image: ClusterImage, voter: Voter) -> bool:
    """Returns True if the voter's disk can never come back. (A founder that has yet to register still may.)"""
    broker = image.brokers.get(NodeId(voter.node_id))
    # With another disk under the voter's node id its promises are gone, and so is the vote that rested on them.
    return voter.voter_id in image.voters_leaving or (broker is not None and broker.storage != voter.incarnation)


def _can_decide(image: ClusterImage) -> bool:
    # A broker that lives on another disk casts no vote: `is_voting` compares voter ids, not node ids.
    live = [voter for voter in image.voters if is_voting(image, voter.voter_id)]
    return len(live) > len(image.voters) // 2


def _step_to_add(image: ClusterImage, broker: BrokerInfo) -> ChangeVoters | AssignVoter:
    """Returns the step that makes the broker a voter: its disk gets an unused voter id before it is added."""
    # An id below `voters_end` was in a voter set, or missed its turn. Used again, it could speak for promises that the
    # disk gave as an earlier voter.
    if broker.voter_id < image.voters_end:
        return AssignVoter(broker.node_id, broker.storage)
    return ChangeVoters(add=Voter(broker.voter_id, broker.node_id, broker.storage, broker.peer_host, broker.peer_port))


def _candidates(image: ClusterImage, sessions: Sessions) -> list[BrokerInfo]:
    """Returns the brokers that could be added as voters, in order of preference."""
    voting = [voter.node_id for voter in image.voters]
    racks = [broker.rack for broker in image.brokers.values() if broker.node_id in voting]
    heard = [(broker, sessions.of(broker.node_id)) for broker in image.live_brokers if broker.node_id not in voting]
    # A voter that has yet to copy the log would count in every majority, and accept nothing for a while.
    least = image.position - BEHIND_RECORDS_MAX
    candidates = [broker for broker, session in heard if session is not None and session.position >= least]
    # The rack with the fewest voters first: a rack that fails should take as few votes as possible.
    return sorted(candidates, key=lambda broker: (racks.count(broker.rack), broker.node_id))
