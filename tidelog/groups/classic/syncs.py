"""Deciding about members of a classic group that ask for their assignment, or say that they are there."""

from __future__ import annotations

from tidelog.groups.classic.members import member_of, unknown
from tidelog.groups.classic.rebalance import rebalancing
from tidelog.groups.classic.state import ClassicGroup, Member, Phase, record_of
from tidelog.groups.classic.turn import Turn
from tidelog.model.classic_groups import ClassicHeartbeat, ClassicRequest, SyncAnswer, SyncGroup
from tidelog.model.errors import IllegalGeneration, InconsistentProtocol, TidelogError


def sync(turn: Turn, request: SyncGroup, wait: int) -> None:
    """Raises what `SyncGroup` says."""
    group = turn.group
    member = _in_force(group, request, request.generation)
    for said, chosen in ((request.protocol_type, group.protocol_type), (request.protocol, group.protocol)):
        if said is not None and said != chosen:
            raise InconsistentProtocol(f"group {group.name!a} goes by {chosen!a}, and the member by {said!a}")
    if group.phase is Phase.PREPARING:
        raise rebalancing(group)
    turn.heard[member.member_id] = None
    turn.tell(member.sync_wait, rebalancing(group))
    member = turn.change(member, has_synced=True, sync_wait=wait)
    if group.phase is Phase.STABLE:
        _answer(turn, member, member.assignment)
    elif member.member_id == group.leader:
        _assign(turn, {one.member_id: one.assignment for one in request.assignments})
    if group.syncing_until_s is not None and all(one.has_synced for one in group.members.values()):
        group.syncing_until_s = None


def _assign(turn: Turn, assignments: dict[str, bytes]) -> None:
    """The leader has spoken. Members that it has forgotten have nothing, and whom it has invented, nobody has."""
    group = turn.group
    group.phase = Phase.STABLE
    for member in list(group.members.values()):
        if member.sync_wait is not None:
            turn.heard[member.member_id] = None
        _answer(turn, member, assignments.get(member.member_id, b""))
    turn.records.append(record_of(group))


def _answer(turn: Turn, member: Member, assignment: bytes) -> None:
    group = turn.group
    turn.tell(member.sync_wait, SyncAnswer(group.protocol_type, group.protocol or "", assignment))
    turn.change(member, assignment=assignment, sync_wait=None)


def heartbeat(group: ClassicGroup, request: ClassicHeartbeat) -> TidelogError | None:
    """Returns what the member is told; None if all is well. Either way it was heard. Raises `UnknownMember`,
    `FencedInstance`, `IllegalGeneration`."""
    _in_force(group, request, request.generation)
    return rebalancing(group) if group.phase is Phase.PREPARING else None


def _in_force(group: ClassicGroup, request: ClassicRequest, generation: int) -> Member:
    """Returns the member, which speaks with the generation in force."""
    if group.phase is Phase.EMPTY:
        raise unknown(group.name, request.member_id)
    member = member_of(group, request)
    check_generation(group, request.member_id, generation)
    return member


def check_generation(group: ClassicGroup, member_id: str, generation: int) -> None:
    """Raises `IllegalGeneration`."""
    if generation != group.generation:
        raise IllegalGeneration(
            f"group {group.name!a} is in generation {group.generation}, and member {member_id!a} speaks with "
            f"{generation}; it has to join again"
        )
