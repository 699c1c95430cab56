"""Decides how the leader of a Paxos partition's log reaches the wanted members, step by step. Pure.

A step adds one member or removes one, so that any majority of the members before and any of those after have a member
in common; in the log it is one VOTERS value (`replication.paxos.voters`). The order keeps the sets small and able to
decide:

- a member whose disk was replaced is removed first;
- then one is added, as soon as it has caught up, and another removed, in turn;
- the leader itself is removed last, and only if no other broker was named to lead;
- no step is taken that would leave no sound majority (`next_step`), nor before the controller knows of the last step.

Ids are added in ascending order. A member that was passed over because a later one was ready can no longer be added:
the leader's report shows this (`MemberSet.next_engine_id`), and the controller gives its disk another id.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from tidelog.controller.quorum_leadership import ids_of
from tidelog.model.cluster import PartitionInfo, PartitionMember
from tidelog.model.wire_numbers import Int64


class MemberSet(msgspec.Struct, frozen=True, array_like=True):
    """The members in force in a partition's log, from its newest VOTERS value."""

    members: tuple[PartitionMember, ...]
    next_engine_id: Int64
    """The smallest engine id that no member has had."""


@dataclass(frozen=True, slots=True)
class MemberStep:
    """A step of a change of members: either `add` or `remove` is given."""

    add: PartitionMember | None = None
    remove: PartitionMember | None = None

    def of(self, now: MemberSet) -> MemberSet:
        """Returns the members after this step. `now` are the members before it."""
        if self.add is None:
            return MemberSet(tuple(member for member in now.members if member != self.remove), now.next_engine_id)
        return MemberSet((*now.members, self.add), self.add.engine_id + 1)


Judge = Callable[[PartitionMember], bool]


def next_step(
    info: PartitionInfo, now: MemberSet, *, is_live: Judge, has_caught_up: Judge, keeps: Judge
) -> MemberStep | None:
    """Returns the leader's next step towards the wanted members; None if none is possible now. `keeps` returns whether
    a member's log has on its disk everything from before `now` came in force."""
    # One step ahead of the controller at most: it elects by the members that it knows, and half of these may be a
    # majority of the next set, but not of the one after.
    if is_report_due(info, now):
        return None
    steps = _steps(info, now, is_live, has_caught_up)
    # A majority has to be live, or the next value could not be chosen. And a majority has to have on its disks what was
    # there when the present members came in force. What these have agreed on since is on enough disks by itself; but
    # who agreed on what came before may have gone, and whoever copies a log has it in memory at first.
    return next((step for step in steps if _is_sound(step.of(now), is_live) and _is_sound(step.of(now), keeps)), None)


def _steps(info: PartitionInfo, now: MemberSet, is_live: Judge, has_caught_up: Judge) -> list[MemberStep]:
    """Returns the possible steps towards the wanted members, in order of preference. Members to be removed that are not
    live come first, since they cast no votes."""
    # An id below was passed over, or was a member: given a vote now, it could speak for promises of another time.
    missing = [member for member in info.wanted if member.engine_id >= now.next_engine_id]
    going = [member for member in now.members if member.engine_id not in ids_of(info.wanted)]
    # The dead first: their votes cost nothing, and without them fewer answers make a majority.
    going.sort(key=lambda member: (is_live(member), member.engine_id))
    # The disk that was replaced goes before its successor comes: a node must never have two votes.
    replaced = [member for member in going if member.node_id in [target.node_id for target in info.wanted]]
    if replaced or (going and (len(now.members) > len(info.wanted) or not missing)):
        # The leader last: removed earlier, it would leave steps that nobody takes.
        others = [member for member in replaced or going if member.node_id != info.leader]
        return [MemberStep(remove=member) for member in others or replaced or going]
    return [MemberStep(add=member) for member in missing if has_caught_up(member)][:1]


def is_report_due(info: PartitionInfo, now: MemberSet) -> bool:
    """Returns True if a report of the members would have the controller act: it does not know them, or waits for the
    report to complete a reassignment, or has to give a new engine id to a wanted member, because one with a larger id
    became a member before it."""
    ids, target_ids = ids_of(now.members), ids_of(info.wanted)
    # Such an id can never be added any more; the controller has to give its disk another.
    is_late = any(engine_id not in ids and engine_id < now.next_engine_id for engine_id in target_ids)
    return is_late or ids != ids_of(info.members) or (ids == target_ids and info.is_moving)


def _is_sound(after: MemberSet, judge: Judge) -> bool:
    """Returns True if a majority of the members passes `judge`."""
    return sum(map(judge, after.members)) > len(after.members) // 2


def in_order(members: Sequence[PartitionMember]) -> tuple[PartitionMember, ...]:
    """Returns the members in order of their engine ids."""
    return tuple(sorted(members, key=lambda member: member.engine_id))
