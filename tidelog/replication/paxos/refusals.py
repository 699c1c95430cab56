"""The reasons for which a node refuses a request of its shell (the code that drives it); a refused request has no
effect."""

from __future__ import annotations

from tidelog.replication.paxos.events import Append, Delete, Elect, Enlist, Found, Reason, Rejoin, Truncate
from tidelog.replication.paxos.numbers import NODE_MAX, owner_of
from tidelog.replication.paxos.replica import Replica
from tidelog.replication.paxos.state import Status
from tidelog.replication.paxos.term import Term

Request = Append | Truncate | Delete | Elect | Found | Rejoin | Enlist


def refusal(event: Request, replica: Replica, term: Term, *, is_coordinator: bool) -> Reason | None:
    """Returns the reason to refuse a request, or None. (The coordinator itself refuses an append beyond its window.)"""
    if replica.is_halted:
        return Reason.STORAGE_ERROR
    match event:
        case Append() | Truncate() | Delete():
            return None if is_coordinator else Reason.NOT_COORDINATOR
        case Elect(number):
            return _to_elect(replica, term) or _to_use(number, replica, term)
        case Rejoin(number):
            return _to_vote(event, replica, term) or _to_use(number, replica, term)
        case Found() | Enlist():
            return _to_vote(event, replica, term)


def _to_use(number: int, replica: Replica, term: Term) -> Reason | None:
    # A number that was used before could name a second value at a position where the first may be chosen.
    is_fresh = number > replica.metadata.issued and owner_of(number) == term.node
    return None if is_fresh else Reason.NUMBER_USED


def _to_elect(replica: Replica, term: Term) -> Reason | None:
    if replica.metadata.status is not Status.VOTING:
        return Reason.NOT_VOTING
    if term.node not in term.quorum:
        return Reason.NOT_MEMBER
    # An attempt under voters that are no longer in force would come to nothing: a proposer that finds newer ones
    # applied writes nothing.
    if replica.voters_position > term.voters_position:
        return Reason.VOTERS_CHANGED
    return Reason.BEHIND if replica.applied.position <= term.voters_position else None


def _to_vote(event: Found | Rejoin | Enlist, replica: Replica, term: Term) -> Reason | None:
    # Ids above are learners', which own no numbers. A disk to be enlisted may come before the VOTERS that name it.
    is_eligible = term.node <= NODE_MAX if isinstance(event, Enlist) else term.node in term.quorum
    if not is_eligible:
        return Reason.NOT_MEMBER
    if replica.is_changing:
        return Reason.CHANGING
    # A fence may fail half-way, and is begun again under a number of its own.
    allowed = {Status.EMPTY, Status.RECOVERING} if isinstance(event, Rejoin) else {Status.EMPTY}
    return None if replica.metadata.status in allowed else Reason.NOT_EMPTY
