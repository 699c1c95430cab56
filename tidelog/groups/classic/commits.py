"""The rule that decides which callers may commit offsets in a classic group.

A member of the current generation may, until it has joined the next one: while the others join it finishes its work. It
may not while the leader assigns, since then no member has partitions. A caller that is no member may commit only while
the group has no members: clients that assign partitions to themselves, and operators.
"""

from __future__ import annotations

from tidelog.groups.classic.members import member_of, unknown
from tidelog.groups.classic.rebalance import rebalancing
from tidelog.groups.classic.state import ClassicGroup, Phase
from tidelog.groups.classic.syncs import check_generation
from tidelog.model.classic_groups import CommitAsMember
from tidelog.model.errors import IllegalGeneration


def check_commit(group: ClassicGroup | None, request: CommitAsMember) -> None:
    """Raises `UnknownMember`, `FencedInstance`, `IllegalGeneration` or `RebalanceInProgress` unless the caller may
    commit. `group` is None if it does not exist or has no members."""
    is_empty = group is None or group.phase is Phase.EMPTY
    # Clients that assign partitions to themselves, and operators, have no generation.
    if request.generation < 0 and is_empty:
        return
    if group is None:
        raise IllegalGeneration(
            f"group {request.group!a} has no members, and member {request.member_id!a} speaks with generation "
            f"{request.generation}; join anew"
        )
    # While somebody is a member, a commit from outside would be undone by the next one from inside.
    if request.generation < 0 and not request.member_id and request.instance_id is None:
        raise unknown(group.name, request.member_id)
    member_of(group, request)
    check_generation(group, request.member_id, request.generation)
    # The leader is still assigning, so nobody of this generation has read anything. While the group prepares, commits
    # of the generation before count: its members finish what they have.
    if group.phase is Phase.COMPLETING:
        raise rebalancing(group)
