"""Even and sticky, for members that do not all subscribe to the same topics.

Everybody keeps what it has; what is free goes to the subscriber that has least, topics with few subscribers first. Then
whoever has most hands partitions to the subscribers that have least, in O(log n) each; what cannot be evened out
directly goes through others' hands (`paths.py`), so that in the end nothing is more even.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from tidelog.groups.assignors.paths import Evening
from tidelog.groups.assignors.shares import Shares, kept
from tidelog.groups.assignors.subscriber import Partition, Subscriber, subscribers_of


def share_out(members: Sequence[Subscriber], topics: Mapping[str, int]) -> dict[str, list[Partition]]:
    """Returns the partitions of every member, as even as they can be."""
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
    """From whoever has most, to the subscriber of any of its topics that has least, as long as it has two fewer.

    Heaps say who has least; an entry that has become too low is put right when it comes up. One that has become too
    high belongs to a member that had most: it is no taker.
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
        """Returns the topic by which the giver reaches the subscriber with the fewest partitions, and how many that
        has."""
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
