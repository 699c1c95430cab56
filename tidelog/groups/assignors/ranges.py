"""The range assignor: each topic by itself, in ranges. Of 10 partitions, three members get 0 to 3, 4 to 6 and 7 to 9.

Topics with the same number of partitions and the same subscribers are co-partitioned: the member with partition 7 of
the orders has partition 7 of the payments, and can join them. In return, with many topics the first members have one
partition more of each. As in Kafka's range assignor, members are ordered by id, and previous ownership does not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelog.groups.assignors.subscriber import Partition, Subscriber, answer, subscribers_of


def assign(members: Sequence[Subscriber], topics: Mapping[str, int]) -> dict[str, tuple[Partition, ...]]:
    """Returns an assignment of each topic in ranges of partitions, by member."""
    given = dict[str, list[Partition]]()
    for topic, subscribers in subscribers_of(members, topics).items():
        each, longer = divmod(topics[topic], len(subscribers))
        first = 0
        for rank, member in enumerate(subscribers):
            # The first members get the longer runs, as in Kafka, so that topics of one size are cut alike.
            end = first + each + (rank < longer)
            given.setdefault(member, []).extend((topic, partition) for partition in range(first, end))
            first = end
    return answer(members, given)
