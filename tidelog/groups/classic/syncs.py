"""Deciding about members of a classic group that ask for their assignment, or say that they are there."""

from __future__ import annotations

from tidelog.groups.classic.members import member_of, unknown
from tidelog.groups.classic.rebalance import rebalancing
from tidelog.groups.classic.state import ClassicGroup, Member, Phase, record_of
from tidelog.groups.classic.turn import Turn
from tidelog.model.classic_groups import ClassicHeartbeat, ClassicRequest, SyncAnswer, SyncGroup
from tidelog.model.errors import IllegalGeneration, InconsistentProtocol, TidelogError


def sync(turn: Turn, request: SyncGroup, wait: int) -> None:
    """Has a member wait for its assignment, or take the group's from its leader. Raises what `SyncGroup` says."""
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
    """Takes the leader's assignment. A member that it does not name gets nothing; an id that is no member's is passed
    over."""
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
    """Returns the error that the heartbeat is answered with; None if all is well. Either way the member was heard.
    Raises `UnknownMember`, `FencedInstance`, `IllegalGeneration`."""
    _in_force(group, request, request.generation)
    return rebalancing(group) if group.phase is Phase.PREPARING else None


def _in_force(group: ClassicGroup, request: ClassicRequest, generation: int) -> Member:
    """Returns the member that a request is from, if it names the generation in force."""
    if group.phase is Phase.EMPTY:
        raise unknown(group.name, request.member_id)
    member = member_of(group, request)
    check_generation(group, request.member_id, generation)
    return member


def check_generation(group: ClassicGroup, member_id: str, generation: int) -> None:
    """Raises `IllegalGeneration`."""
    # A late request of an earlier generation must not count in this one, where the member may have other partitions.
    if generation != group.generation:
        raise IllegalGeneration(
            f"group {group.name!a} is in generation {group.generation}, and member {member_id!a} speaks with "
            f"{generation}; it has to join again"
        )
