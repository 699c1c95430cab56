"""The uniform assignor: balanced and sticky. Where all members subscribe to the same topics, their numbers of
partitions differ by one at most, and no assignment as balanced moves fewer. `uneven.py` is for members with different
subscriptions.

With P partitions and n members, each gets P div n, and P mod n of them one more: first those that own more now, then
the others by id. Each member keeps as much as its share allows; the rest is given in turn to members below their share.
So a joining member gets its share from members that have too many, and of a leaving member only its own partitions
move.

Partitions are given in turn, not in ranges, so that a member has about as many of each topic as the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from tidelog.groups.assignors import uneven
from tidelog.groups.assignors.shares import kept
from tidelog.groups.assignors.subscriber import Partition, Subscriber, answer


def assign(members: Sequence[Subscriber], topics: Mapping[str, int]) -> dict[str, tuple[Partition, ...]]:
    """Returns an assignment in which the members' numbers of partitions differ by one at most, and as few as possible
    move."""
    subscriptions = dict.fromkeys(
        frozenset(topics.keys() & names) for names in dict.fromkeys(m.topics for m in members)
    )
    # Compared as sets of existing topics: members that name other topics, none of which exists, are alike.
    if len(subscriptions) > 1:
        return answer(members, uneven.share_out(members, topics))
    return answer(members, _share_out(members, topics))


def _share_out(members: Sequence[Subscriber], topics: Mapping[str, int]) -> dict[str, list[Partition]]:
    given, free = kept(members, topics)
    share, longer = divmod(len(free) + sum(map(len, given.values())), len(given) or 1)
    room = dict.fromkeys(given, share)
    # The members that have more than a share keep one more: so the fewest partitions move.
    for member in sorted(given, key=lambda member: len(given[member]) <= share)[:longer]:
        room[member] += 1
    for member, has in given.items():
        given[member], surplus = _divided(has, room[member])
        free.extend(surplus)
    _deal(sorted(free), given, room)
    return given


def _divided(has: list[Partition], count: int) -> tuple[list[Partition], list[Partition]]:
    """Splits a member's partitions into `count` that it keeps, spread evenly over its topics, and those that it gives
    away."""
    if len(has) <= count:
        return has, []
    seen = dict[str, int]()
    ranked = list[tuple[int, Partition]]()
    for partition in sorted(has):
        rank = seen[partition[0]] = seen.get(partition[0], -1) + 1
        ranked.append((rank, partition))
    # By rank within each topic: what is given away first is of the topic that the member has most of, so that the share
    # of each topic that it reads stays alike.
    ordered = [partition for _, partition in sorted(ranked)]
    return ordered[:count], ordered[count:]


def _deal(free: list[Partition], given: dict[str, list[Partition]], room: Mapping[str, int]) -> None:
    lacking = deque(member for member, has in given.items() if len(has) < room[member])
    for partition in free:
        # One at a time, in turn: a run of them would give one member most of a topic.
        member = lacking.popleft()
        given[member].append(partition)
        if len(given[member]) < room[member]:
            lacking.append(member)
    assert not lacking, "the shares add up to all partitions"
