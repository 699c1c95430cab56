"""Balances an assignment as far as possible: moves partitions along *cost-reducing paths* until there are none.

Such a path leads from a member to one with at least two partitions fewer; each step moves a partition to another
subscriber of its topic. An assignment without such paths is optimal: neither its largest nor its smallest share nor the
sum of the squares can be improved (Harvey, Ladner, Lovasz and Tamir, "Semi-matchings for bipartite graphs and load
balancing", 2003). Shortest paths come first, since each step moves a partition.

The search begins at the member with most partitions. It is bounded: after too many steps the assignment stays valid but
less balanced, and the next assignment continues from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple, TypeAlias

from tidelog.groups.assignors.shares import Shares

STEPS_PER_ITEM_MAX: Final = 100
"""Maximum number of search steps per partition and per subscription."""


class _Step(NamedTuple):
    giver: str
    topic: str
    taker: str


_LastSteps: TypeAlias = dict[str, _Step | None]
"""For each member reached by the search, the last step of the path to it; None for the first member."""


class Evening:
    """A search for all cost-reducing paths: chains of members, each of which can give the next one a partition, from a
    member to one with at least two partitions fewer. `run` moves partitions along them."""

    def __init__(self, shares: Shares, subscribers: Mapping[str, Sequence[str]]) -> None:
        self._shares = shares
        self._subscribers = subscribers
        self._settled = dict[str, None]()
        self._settled_topics = dict[str, None]()
        items = sum(shares.count.values()) + sum(map(len, subscribers.values()))
        self._steps_left = STEPS_PER_ITEM_MAX * items

    def run(self) -> None:
        count = self._shares.count
        most = [(-has, member) for member, has in count.items()]
        heapify(most)
        # Any state in between is a valid assignment, so the search may stop at its bound.
        while most and self._steps_left > 0:
            has, member = heappop(most)
            # The entry is from before the member gave or took something; its newer entry is in the heap.
            if member in self._settled or -has != count[member]:
                continue
            path = self._path_from(member)
            for step in path:
                self._shares.hand(*step)
            if path:
                heappush(most, (-count[member], member))
                heappush(most, (-count[path[0].taker], path[0].taker))

    def _path_from(self, source: str) -> list[_Step]:
        """Returns a shortest cost-reducing path from `source`, last step first. If there is none, returns an empty list
        and excludes all members reached from further searches."""
        count = self._shares.count
        last_steps: _LastSteps = {source: None}
        topics = dict[str, None]()
        frontier = [source]
        while frontier:
            frontier = list(self._next(frontier, last_steps, topics))
            target = min(frontier, key=lambda member: (count[member], member), default=source)
            # With a difference of one the two would only change places.
            if count[target] <= count[source] - 2:
                return _path_to(target, last_steps)
        # No path leads from here, and none ever will: all that can be reached has about as much as the source.
        self._settled.update(dict.fromkeys(last_steps))
        self._settled_topics.update(topics)
        return []

    def _next(self, frontier: Sequence[str], last_steps: _LastSteps, topics: dict[str, None]) -> Iterator[str]:
        """Yields the members, not reached before, to which a member of the frontier could give a partition."""
        for giver in frontier:
            # What a member was given last it hands on first, so that it keeps what it had.
            for topic in reversed(self._shares.held[giver]):
                self._steps_left -= 1
                if topic in topics or topic in self._settled_topics:
                    continue
                # Each topic is looked at once in a search: its subscribers are the same, whoever gives.
                topics[topic] = None
                for taker in self._subscribers[topic]:
                    self._steps_left -= 1
                    if taker not in last_steps:
                        last_steps[taker] = _Step(giver, topic, taker)
                        yield taker


def _path_to(target: str, last_steps: _LastSteps) -> list[_Step]:
    steps = list[_Step]()
    step = last_steps[target]
    while step is not None:
        steps.append(step)
        step = last_steps[step.giver]
    return steps
