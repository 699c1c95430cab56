"""Rebalance of a classic group, from one generation to the next.

Preparing: old and new members join. It ends when all have joined, or after the longest rebalance timeout; members that
have not joined by then are removed, except static ones, which may be restarting. The first generation of a group
instead waits for `group.initial.rebalance.delay.ms`, and again as long as more members have joined meanwhile.

Completing: the previous leader stays if it has joined, otherwise the oldest member that has joined leads. The protocol
is the one that all support and most prefer. It ends when the leader has synced. Members that have not synced within the
rebalance timeout are removed, and another rebalance begins.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from msgspec import structs

from tidelog.groups.classic.state import ClassicGroup, Joining, Member, Phase, record_of
from tidelog.groups.classic.turn import Turn
from tidelog.model.classic_groups import JoinAnswer, JoinedMember
from tidelog.model.errors import RebalanceInProgress, UnknownMember


def prepare(turn: Turn) -> None:
    """Begins a rebalance: all members must join again."""
    group, now_s = turn.group, turn.now.monotonic_s
    if group.phase is Phase.PREPARING:
        complete_if_all_joined(turn)
        return
    # The generation that they wait for will never be assigned.
    for member in [waiting for waiting in group.members.values() if waiting.sync_wait is not None]:
        turn.tell(member.sync_wait, rebalancing(group))
        turn.change(member, sync_wait=None)
        turn.heard[member.member_id] = None
    delay_s = turn.settings.initial_rebalance_delay_ms / 1000
    longest_s = now_s + group.rebalance_s
    # Programs are started together: without this wait the first would begin a generation alone, and each further one
    # another.
    if group.phase is Phase.EMPTY and delay_s > 0:
        group.joining = Joining(min(now_s + delay_s, longest_s), longest_s)
    else:
        group.joining = Joining(longest_s)
    group.phase, group.syncing_until_s = Phase.PREPARING, None
    complete_if_all_joined(turn)


def complete_if_all_joined(turn: Turn) -> None:
    """Ends the wait for joins, if all members have joined."""
    group = turn.group
    if group.joining is None:
        return
    # Ids that were given away are waited for, too: their clients are about to join. In the first generation the time
    # decides, not the members that are there so far.
    is_all = group.awaiting == len(group.members) and not group.pending and group.joining.longest_s is None
    if is_all or not group.members:
        _complete(turn)


def joining_is_over(turn: Turn) -> None:
    """Ends the wait for joins at its deadline. In a new group the wait may be extended if more members have come."""
    group, joining = turn.group, turn.group.joining
    assert joining is not None, "only who prepares waits for joins"
    now_s = turn.now.monotonic_s
    # Where one came more may come; but never longer than the longest rebalance timeout.
    if joining.longest_s is not None and joining.has_grown and now_s < joining.longest_s:
        delay_s = turn.settings.initial_rebalance_delay_ms / 1000
        group.joining = Joining(min(now_s + delay_s, joining.longest_s), joining.longest_s)
    else:
        _complete(turn)


def syncing_is_over(turn: Turn) -> None:
    """Removes the members that have not synced in time, and begins another rebalance."""
    group = turn.group
    late = [member.member_id for member in group.members.values() if not member.has_synced]
    assert late, "the last one to sync has ended the wait"
    for member_id in late:
        turn.expel(member_id, _late(group, member_id))
    group.syncing_until_s = None
    prepare(turn)


def _complete(turn: Turn) -> None:
    """Ends the wait for joins: begins a generation with the joined members, or empties the group."""
    group = turn.group
    # A static member may be restarting: it keeps its place, and its partitions, until its session is over.
    away = [member for member in group.members.values() if member.join_wait is None]
    for member in away:
        if member.instance_id is None:
            turn.expel(member.member_id, _late(group, member.member_id))
    if not group.members:
        _become_empty(turn)
    elif not group.awaiting:  # static members that are all away: until their sessions are over
        group.joining = Joining(turn.now.monotonic_s + group.rebalance_s)
    else:
        _begin_generation(turn)


def _become_empty(turn: Turn) -> None:
    group = turn.group
    group.generation += 1
    # The number went up: a late commit of the last generation must not count in the group that comes next.
    group.phase, group.joining, group.syncing_until_s = Phase.EMPTY, None, None
    group.protocol = group.leader = None
    turn.records.append(record_of(group, turn.now.wall_ms))


def _begin_generation(turn: Turn) -> None:
    group = turn.group
    group.generation += 1
    group.phase, group.joining = Phase.COMPLETING, None
    group.syncing_until_s = turn.now.monotonic_s + group.rebalance_s
    group.leader, group.protocol = _elected(group), chosen_protocol(group)
    joined = [member for member in group.members.values() if member.join_wait is not None]
    for member in list(group.members.values()):
        # What the last leader gave away must not be told in this generation.
        turn.change(member, assignment=b"", has_synced=False, join_wait=None, newcomer_until_s=None)
    # Before any of them is told: a coordinator that takes over must not use the number for other members or another
    # leader.
    turn.records.append(record_of(group))
    for member in joined:
        turn.tell(member.join_wait, join_answer(group, member))
        turn.heard[member.member_id] = None


def _elected(group: ClassicGroup) -> str:
    leader = None if group.leader is None else group.members.get(group.leader)
    if leader is not None and leader.join_wait is not None:
        return leader.member_id
    return next(member.member_id for member in group.members.values() if member.join_wait is not None)


def chosen_protocol(group: ClassicGroup) -> str:
    """Returns the protocol preferred by most members among those that all support; of equals, the earliest member's."""
    common = group.common_protocols()
    assert common, "a member that has nothing in common with the others is refused"
    votes = Counter(_preferred_protocol(member, common) for member in group.members.values())
    # `max` takes the first of equals, and votes are in the order of the members.
    return max(votes, key=lambda name: votes[name])


def _preferred_protocol(member: Member, common: list[str]) -> str:
    return next(protocol.name for protocol in member.protocols if protocol.name in common)


def join_answer(group: ClassicGroup, member: Member) -> JoinAnswer:
    """Returns the answer to a member's join in the current generation. The leader's answer lists all members."""
    assert group.leader is not None, "a generation has a leader"
    answer = JoinAnswer(member.member_id, group.generation, group.protocol_type, group.protocol or "", group.leader)
    # Only the leader assigns, so only it needs the others' metadata.
    if group.leader != member.member_id:
        return answer
    members = group.members.values()
    joined = (JoinedMember(joiner.member_id, joiner.instance_id, joiner.metadata(group.protocol)) for joiner in members)
    return structs.replace(answer, members=tuple(joined))


def joining_grows(group: ClassicGroup) -> None:
    """Notes that a member has joined, so that the wait of a new group is extended."""
    if group.joining is not None:
        group.joining = replace(group.joining, has_grown=True)


def rebalancing(group: ClassicGroup) -> RebalanceInProgress:
    """Returns the error that makes members join again."""
    return RebalanceInProgress(f"group {group.name!a} is between two generations; join again")


def _late(group: ClassicGroup, member_id: str) -> UnknownMember:
    return UnknownMember(f"member {member_id!a} of group {group.name!a} was too late, and is expelled; join anew")
