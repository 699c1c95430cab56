"""The sets of replicas that decide: the majorities of one set of members, or of several at once.

All that a quorum must do is to meet every other quorum. Protocol code asks `is_met`, never for a number, so that the
joint majorities of a membership change (Ongaro's dissertation, 4.3) replace a plain majority without its noticing.

Members that deny that anything was decided need not be a quorum. It is enough that they `block` every quorum: each has
one of them. Of an even number of members fewer do that than are a quorum: one of two, two of four.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Quorum(Protocol):
    """The quorum rule that protocol code asks."""

    @property
    def members(self) -> tuple[int, ...]:
        """Returns the members whose answers may count, in the order of their ids."""

    def is_met(self, nodes: Iterable[int]) -> bool:
        """True if enough members are among `nodes`; others, and repetitions, count for nothing."""

    def __contains__(self, node: int) -> bool: ...


class Majority:
    """The majorities of the members: floor(N / 2) + 1 of them, or more."""

    def __init__(self, members: Iterable[int]) -> None:
        self.members = tuple(sorted(members))
        """Engine ids, in order."""
        # More than half, also of an even number: two pairs of four need not meet.
        self.size = len(self.members) // 2 + 1
        self._among = frozenset(self.members)
        # A member counted twice would make quorums of too few nodes.
        assert self.members and len(self._among) == len(self.members), "members are distinct nodes"

    def is_met(self, nodes: Iterable[int]) -> bool:
        return len(self._among.intersection(nodes)) >= self.size

    def __contains__(self, node: int) -> bool:
        return node in self._among


class Unanimous:
    """All of the members at once: it meets every set that has one of them."""

    def __init__(self, members: Iterable[int]) -> None:
        self.members = tuple(sorted(members))
        self._among = frozenset(self.members)
        assert self.members and len(self._among) == len(self.members), "members are distinct nodes"

    def is_met(self, nodes: Iterable[int]) -> bool:
        return self._among.issubset(nodes)

    def __contains__(self, node: int) -> bool:
        return node in self._among


class Joint:
    """Quorums of several sets at once: it meets every quorum of each set."""

    def __init__(self, quorums: Iterable[Quorum]) -> None:
        self.quorums = tuple(quorums)
        assert self.quorums, "there is something to be met"
        self.members = tuple(sorted({member for quorum in self.quorums for member in quorum.members}))

    def is_met(self, nodes: Iterable[int]) -> bool:
        # `nodes` may be an iterator, and every quorum reads it.
        among = frozenset(nodes)
        return all(quorum.is_met(among) for quorum in self.quorums)

    def __contains__(self, node: int) -> bool:
        return any(node in quorum for quorum in self.quorums)


def blocks(nodes: Iterable[int], quorum: Quorum) -> bool:
    """Returns True if each quorum has one of `nodes`."""
    # A quorum without any of them would consist of the other members alone.
    return not quorum.is_met(set(quorum.members).difference(nodes))


def parts_of(quorum: Quorum) -> tuple[Quorum, ...]:
    """Returns the quorums that have to be met together."""
    return quorum.quorums if isinstance(quorum, Joint) else (quorum,)
