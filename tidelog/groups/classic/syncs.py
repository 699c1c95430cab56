"""Decisions about SyncGroup requests and heartbeats of classic group members."""

from __future__ import annotations

from tidelog.groups.classic.members import member_of, unknown
from tidelog.groups.classic.rebalance import rebalancing
from tidelog.groups.classic.state import ClassicGroup, Member, Phase, record_of
from tidelog.groups.classic.turn import Turn
from tidelog.model.classic_groups import ClassicHeartbeat, ClassicRequest, SyncAnswer, SyncGroup
from tidelog.model.errors import IllegalGeneration, InconsistentProtocol, TidelogError


def sync(turn: Turn, request: SyncGroup, wait: int) -> None:
    """Makes the member wait for its assignment, or answers it; stores the assignments if it is the leader. Raises
    `UnknownMember`, `FencedInstance`, `IllegalGeneration`, `InconsistentProtocol` or `RebalanceInProgress`."""
    group = turn.group
    member = _in_force(group, request, request.generation)
    for said, chosen in ((request.protocol_type, group.protocol_type), (request.protocol, group.protocol)):
        if said is not None and said != chosen:
            raise InconsistentProtocol(f"group {group.name!a} goes by {chosen!a}, and the member by {said!a}")
    # The assignment of this generation will never be given: the next one is being joined.
    if group.phase is Phase.PREPARING:
        raise rebalancing(group)
    turn.heard[member.member_id] = None
    # An earlier sync of the same member is answered, so that each member has one waiting at most.
    turn.tell(member.sync_wait, rebalancing(group))
    member = turn.change(member, has_synced=True, sync_wait=wait)
    if group.phase is Phase.STABLE:
        _answer(turn, member, member.assignment)
    elif member.member_id == group.leader:
        _assign(turn, {given.member_id: given.assignment for given in request.assignments})
    # Whoever has synced has shown that it lives; the others have until the deadline.
    if group.syncing_until_s is not None and all(other.has_synced for other in group.members.values()):
        group.syncing_until_s = None


def _assign(turn: Turn, assignments: dict[str, bytes]) -> None:
    """Stores the leader's assignments. A member without one gets empty bytes; unknown member ids are ignored."""
    group = turn.group
    group.phase = Phase.STABLE
    for member in list(group.members.values()):
        if member.sync_wait is not None:
            turn.heard[member.member_id] = None
        _answer(turn, member, assignments.get(member.member_id, b""))
    # Before anybody has it: a coordinator that takes over must know what was assigned in this generation, or a second
    # assignment could be made in it.
    turn.records.append(record_of(group))


def _answer(turn: Turn, member: Member, assignment: bytes) -> None:
    group = turn.group
    turn.tell(member.sync_wait, SyncAnswer(group.protocol_type, group.protocol or "", assignment))
    turn.change(member, assignment=assignment, sync_wait=None)


def heartbeat(group: ClassicGroup, request: ClassicHeartbeat) -> TidelogError | None:
    """Returns None, or the error `RebalanceInProgress` as the answer; either way the heartbeat extends the member's
    session. Raises `UnknownMember`, `FencedInstance` or `IllegalGeneration`."""
    _in_force(group, request, request.generation)
    return rebalancing(group) if group.phase is Phase.PREPARING else None


def _in_force(group: ClassicGroup, request: ClassicRequest, generation: int) -> Member:
    """Returns the member that sent a request, if it names the current generation. Raises `UnknownMember`,
    `FencedInstance` or `IllegalGeneration`."""
    if group.phase is Phase.EMPTY:
        raise unknown(group.name, request.member_id)
    member = member_of(group, request)
    check_generation(group, request.member_id, generation)
    return member


def check_generation(group: ClassicGroup, member_id: str, generation: int) -> None:
    """Raises `IllegalGeneration` unless the request names the group's current generation."""
    # A late request of an earlier generation must not count in this one, where the member may have other partitions.
    if generation != group.generation:
        raise IllegalGeneration(
            f"group {group.name!a} is in generation {group.generation}, and member {member_id!a} speaks with "
            f"{generation}; it has to join again"
        )
