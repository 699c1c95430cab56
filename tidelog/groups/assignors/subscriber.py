"""Input and result of assignors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

Partition: TypeAlias = tuple[str, int]


class Subscriber(NamedTuple):
    """A member of a group: its subscription, and the partitions that it owned before."""

    member_id: str
    topics: tuple[str, ...]
    owned: tuple[Partition, ...] = ()


class Assignor(Protocol):
    """A function that assigns partitions to all members. `topics` has the number of partitions of each topic. Member
    ids are distinct. Each member's partitions are in ascending order."""

    def __call__(
        self, members: Sequence[Subscriber], topics: Mapping[str, int]
    ) -> dict[str, tuple[Partition, ...]]: ...


def subscribers_of(members: Sequence[Subscriber], topics: Mapping[str, int]) -> dict[str, list[str]]:
    """Returns the ids of each topic's subscribers, ascending, for the existing topics that anybody subscribes to."""
    by_topic = dict[str, list[str]]()
    for member in sorted(members):
        for topic in dict.fromkeys(member.topics):
            if topic in topics:
                by_topic.setdefault(topic, []).append(member.member_id)
    return {topic: by_topic[topic] for topic in sorted(by_topic)}


def answer(members: Sequence[Subscriber], given: Mapping[str, list[Partition]]) -> dict[str, tuple[Partition, ...]]:
    """Returns the partitions given to each member, by member id, in ascending order; empty for members without
    partitions."""
    assert len({member.member_id for member in members}) == len(members), "member ids are distinct"
    return {member.member_id: tuple(sorted(given.get(member.member_id, ()))) for member in sorted(members)}
