"""The state that a group must have when it is not disturbed any more (pure functions)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from tidelog.model.groups import GroupDescription, pairs
from tidelog.model.ids import TopicPartition
from tidelog.sim.cluster.group_traffic import MemberPlan

STABLE = "Stable"


def wants(plan: MemberPlan, topic: str) -> bool:
    return topic in plan.topics or (bool(plan.pattern) and re.fullmatch(plan.pattern, topic) is not None)


def unsettled(
    described: GroupDescription,
    members: Mapping[str, tuple[MemberPlan, Sequence[TopicPartition]]],
    partitions: Mapping[str, int],
) -> Iterator[str]:
    """Yields how a group's description differs from the state it must have: stable, with one owner for each subscribed
    partition. `members` are the living members by id, with the partitions that they hold; `partitions` are the topics'
    partition counts."""
    if described.state != STABLE:
        yield f"the state is {described.state}"
    known = {member.member_id: member for member in described.members}
    if sorted(known) != sorted(members):
        yield f"the members are {sorted(known)}, and {sorted(members)} live"
        return
    owners = dict[TopicPartition, list[str]]()
    for member_id, (plan, held) in sorted(members.items()):
        owned = [TopicPartition(*pair) for pair in pairs(known[member_id].owned)]
        if sorted(held) != owned:
            yield f"{member_id} holds {sorted(held)}, and was given {owned}"
        for where in owned:
            owners.setdefault(where, []).append(member_id)
            if not wants(plan, where.topic):
                yield f"{member_id} was given {where}, and does not want it"
    for topic, count in sorted(partitions.items()):
        is_wanted = any(wants(plan, topic) for plan, _ in members.values())
        for where in (TopicPartition(topic, number) for number in range(count)):
            if len(owners.pop(where, [])) != is_wanted:
                yield f"{where} has not one owner"
    yield from (f"{where} is no partition, and owned by {owner}" for where, owner in owners.items())
