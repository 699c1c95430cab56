"""Quorums: the majorities of one set of members, or of several sets at once.

A quorum only has to intersect every other quorum. Protocol code calls `is_met` and never counts members, so the joint
majorities of a membership change (Ongaro's dissertation, 4.3) can replace a plain majority without a change there.

Members that deny that a value was chosen need not be a quorum. It is enough that they `block` every quorum, that is,
each quorum has one of them. With an even number of members fewer than a quorum block: one of two, two of four.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Quorum(Protocol):
    """The interface of a quorum rule, as protocol code uses it."""

    @property
    def members(self) -> tuple[int, ...]:
        """Returns the members whose answers count, in the order of their ids."""

    def is_met(self, nodes: Iterable[int]) -> bool:
        """True if `nodes` includes a quorum; nodes that are no members, and repetitions, do not count."""

    def __contains__(self, node: int) -> bool: ...


class Majority:
    """The majorities of the members: floor(N / 2) + 1 of them, or more."""

    def __init__(self, members: Iterable[int]) -> None:
        self.members = tuple(sorted(members))
        """The members' ids in the Paxos engine, in order."""
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
    """The quorum of all members at once."""

    def __init__(self, members: Iterable[int]) -> None:
        self.members = tuple(sorted(members))
        self._among = frozenset(self.members)
        assert self.members and len(self._among) == len(self.members), "members are distinct nodes"

    def is_met(self, nodes: Iterable[int]) -> bool:
        return self._among.issubset(nodes)

    def __contains__(self, node: int) -> bool:
        return node in self._among


class Joint:
    """The quorum that consists of a quorum of each of several sets."""

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
    """Returns True if every quorum has at least one of `nodes`."""
    # A quorum without any of them would consist of the other members alone.
    return not quorum.is_met(set(quorum.members).difference(nodes))


def parts_of(quorum: Quorum) -> tuple[Quorum, ...]:
    """Returns the quorums that `quorum` requires to be met together."""
    return quorum.quorums if isinstance(quorum, Joint) else (quorum,)
