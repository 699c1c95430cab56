"""The round-robin assignor: all partitions, topic by topic, are assigned to the members in turn, skipping members that
do not subscribe to the topic.

As with Kafka's round-robin assignor, the result is balanced where all members subscribe to the same topics, and
previous ownership does not count.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from tidelog.groups.assignors.subscriber import Partition, Subscriber, answer, subscribers_of


def assign(members: Sequence[Subscriber], topics: Mapping[str, int]) -> dict[str, tuple[Partition, ...]]:
    """Returns an assignment of one partition after the other, by member."""
    member_ids = sorted(member.member_id for member in members)
    seat_of = {member: seat for seat, member in enumerate(member_ids)}
    given = dict[str, list[Partition]]()
    turn = 0
    for topic, subscribers in subscribers_of(members, topics).items():
        seats = [seat_of[member] for member in subscribers]
        # The turn goes on where the last topic ended, at the next member that subscribes to this one.
        position = bisect_left(seats, turn)
        for partition in range(topics[topic]):
            seat = seats[position % len(seats)]
            given.setdefault(member_ids[seat], []).append((topic, partition))
            turn = (seat + 1) % len(member_ids)
            position = position % len(seats) + 1
    return answer(members, given)
