"""All partitions, topic by topic, dealt out in turn; who does not subscribe to a topic is passed over.

As Kafka's round-robin assignor: even where all subscribe to the same topics, and what a member owned does not count.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from tidelog.groups.assignors.subscriber import Partition, Subscriber, answer, subscribers_of


def assign(members: Sequence[Subscriber], topics: Mapping[str, int]) -> dict[str, tuple[Partition, ...]]:
    """Assigns partition after partition, in turn."""
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
