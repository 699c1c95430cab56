"""Which sets of replicas decide: the majorities of a fixed set of members.

All that a quorum must do is to meet every other quorum. Protocol code asks `is_met`, never for a number, so that the
joint majorities of a membership change can take this class's place.
"""

from __future__ import annotations

from collections.abc import Iterable


class Majority:
    """floor(N / 2) + 1 of the members. For four it is three: two pairs of four need not meet."""

    def __init__(self, members: Iterable[int]) -> None:
        self.members = tuple(sorted(members))
        """Node ids, in order."""
        self.size = len(self.members) // 2 + 1
        self._among = frozenset(self.members)
        assert self.members and len(self._among) == len(self.members), "members are distinct nodes"

    def is_met(self, nodes: Iterable[int]) -> bool:
        """True if enough members are among `nodes`; others, and repetitions, count for nothing."""
        return len(self._among.intersection(nodes)) >= self.size

    def __contains__(self, node: int) -> bool:
        return node in self._among
