"""The partitions of each member while an assignment is being balanced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelog.groups.assignors.subscriber import Partition, Subscriber


class Shares:
    """The partitions of each member by topic, and their number. The partition that a member was given last moves on
    first."""

    def __init__(self, given: Mapping[str, Sequence[Partition]]) -> None:
        self.count = {member: len(has) for member, has in given.items()}
        self.held: dict[str, dict[str, list[Partition]]] = {member: {} for member in given}
        for member, has in given.items():
            for partition in has:
                self.held[member].setdefault(partition[0], []).append(partition)

    def give(self, member: str, partition: Partition) -> None:
        self.held[member].setdefault(partition[0], []).append(partition)
        self.count[member] += 1

    def hand(self, giver: str, topic: str, taker: str) -> None:
        """Moves one partition of the topic from one member to another."""
        partitions = self.held[giver][topic]
        self.give(taker, partitions.pop())
        self.count[giver] -= 1
        if not partitions:
            del self.held[giver][topic]

    def lists(self) -> dict[str, list[Partition]]:
        return {
            member: [partition for partitions in held.values() for partition in partitions]
            for member, held in self.held.items()
        }


def kept(
    members: Sequence[Subscriber], topics: Mapping[str, int]
) -> tuple[dict[str, list[Partition]], list[Partition]]:
    """Returns the partitions that each member may keep, by member id, and the unowned partitions of subscribed topics,
    in ascending order."""
    holder = dict[Partition, str]()
    subscribed_topics = dict[str, None]()
    given = dict[str, list[Partition]]()
    for member in sorted(members):
        subscribed = topics.keys() & member.topics
        subscribed_topics.update(dict.fromkeys(sorted(subscribed)))
        # Two members may claim one partition, by old targets: the first by id keeps it.
        keeps = [
            partition
            for partition in sorted(set(member.owned))
            if partition[0] in subscribed and 0 <= partition[1] < topics[partition[0]] and partition not in holder
        ]
        holder.update(dict.fromkeys(keeps, member.member_id))
        given[member.member_id] = keeps
    every = ((topic, number) for topic in sorted(subscribed_topics) for number in range(topics[topic]))
    return given, [partition for partition in every if partition not in holder]
