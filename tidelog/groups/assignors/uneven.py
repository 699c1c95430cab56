"""The uniform assignor for members with different subscriptions: balanced and sticky.

Each member keeps what it has. Unowned partitions go to the subscriber with fewest partitions, topics with few
subscribers first. Then members with most partitions give some to the subscribers with fewest, in O(log n) each. What
cannot be balanced directly is moved through third members (`paths.py`), so that no better balance remains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from tidelog.groups.assignors.paths import Evening
from tidelog.groups.assignors.shares import Shares, kept
from tidelog.groups.assignors.subscriber import Partition, Subscriber, subscribers_of


def share_out(members: Sequence[Subscriber], topics: Mapping[str, int]) -> dict[str, list[Partition]]:
    """Returns the partitions of every member, by member id, as balanced as possible."""
    given, free = kept(members, topics)
    subscribers = subscribers_of(members, topics)
    shares = Shares(given)
    _give_free(free, shares, subscribers)
    _Handing(shares, subscribers).run()
    Evening(shares, subscribers).run()
    return shares.lists()


def _give_free(free: list[Partition], shares: Shares, subscribers: Mapping[str, Sequence[str]]) -> None:
    by_topic = dict[str, list[Partition]]()
    for partition in free:
        by_topic.setdefault(partition[0], []).append(partition)
    # Topics with few subscribers first: those with many can still even out what these make uneven.
    for topic in sorted(by_topic, key=lambda topic: (len(subscribers[topic]), topic)):
        least = [(shares.count[member], member) for member in subscribers[topic]]
        heapify(least)
        for partition in by_topic[topic]:
            count, member = least[0]
            shares.give(member, partition)
            heapreplace(least, (count + 1, member))


class _Handing:
    """Moves partitions from the member with most to the subscriber of its topics with fewest, while they differ by two
    or more.

    Heaps give the subscriber with fewest partitions of each topic. An entry whose count is too low is corrected when it
    comes up. One whose count is too high belongs to a member that has given partitions, and so is no receiver.
    """

    def __init__(self, shares: Shares, subscribers: Mapping[str, Sequence[str]]) -> None:
        self._shares = shares
        self._least = {topic: [(shares.count[m], m) for m in members] for topic, members in subscribers.items()}
        for heap in self._least.values():
            heapify(heap)
        self._ways = {member: [(0, topic) for topic in held] for member, held in shares.held.items()}

    def run(self) -> None:
        count = self._shares.count
        most = [(-has, member) for member, has in count.items()]
        heapify(most)
        while most:
            has, giver = heappop(most)
            # The entry is from before the member gave or took something.
            if -has != count[giver] or not self._ways[giver]:
                continue
            fewest, topic = self._way(giver)
            if fewest <= count[giver] - 2:
                taker = self._least[topic][0][1]
                # From now on the taker can hand on partitions of this topic, too; 0 is a bound that is put right when
                # it comes up.
                if topic not in self._shares.held[taker]:
                    heappush(self._ways[taker], (0, topic))
                self._shares.hand(giver, topic, taker)
                heappush(most, (-count[giver], giver))
                heappush(most, (-count[taker], taker))

    def _way(self, giver: str) -> tuple[int, str]:
        """Returns the lowest number of partitions among the subscribers that the giver can give to, and the topic by
        which it can."""
        ways = self._ways[giver]
        while True:
            fewest, topic = ways[0]
            # The giver has handed on its last partition of this topic.
            if topic not in self._shares.held[giver]:
                heappop(ways)  # never the last: what a giver has can be reached, and it gives from two on
                continue
            now = self._fewest(topic)
            # A bound that was too low would hide a better way; one that holds is the best.
            if now <= fewest:
                return now, topic
            heapreplace(ways, (now, topic))

    def _fewest(self, topic: str) -> int:
        heap = self._least[topic]
        while (count := self._shares.count[heap[0][1]]) != heap[0][0]:
            heapreplace(heap, (count, heap[0][1]))
        return count
