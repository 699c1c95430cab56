"""The next epoch of a group: an assignor makes new target assignments from the members' subscriptions.

The group keeps a digest of the subscribed topics' names, ids and sizes at that time. When the cluster's topics change,
`has_other_topics` compares it: a subscribed topic that was created, grew, was deleted or was created anew causes the
next epoch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import xxhash

from tidelog.groups.assignors import ASSIGNORS, Subscriber
from tidelog.groups.assignors.subscriber import Partition
from tidelog.groups.group import NO_TARGET, Group, target_record
from tidelog.groups.patterns import matcher
from tidelog.groups.records import GroupLogRecord, GroupRecord, MemberRecord, TargetKey, gone
from tidelog.groups.settings import Now, TopicsView

DEFAULT_ASSIGNOR: Final = "uniform"


@dataclass(frozen=True, slots=True)
class Rebalance:
    """The next epoch of a group, its targets, and the records to write."""

    epoch: int
    records: tuple[GroupLogRecord, ...]
    targets: Mapping[str, Mapping[Partition, str]]
    """Target assignment of each member: topic id of each partition."""


def rebalance(
    group: Group,
    members: Mapping[str, MemberRecord],
    targets: Mapping[str, Mapping[Partition, str]],
    view: TopicsView,
    now: Now,
) -> Rebalance:
    """Returns the next epoch of a group with these members. `targets` are the previous targets, for sticky
    assignors."""
    epoch = group.epoch + 1
    assignor = _elected(group, members)
    subscribed = resolved(members, view)
    record = GroupRecord(group.name, epoch, assignor, digest(subscribed, view), _empty_since(group, members, now))
    # From the old targets, not from what members hold now: a sticky assignor would else undo the moves that are under
    # way.
    made = _targets(members, subscribed, targets, view, assignor)
    changed = tuple(
        target_record(group.name, member_id, target)
        for member_id, target in made.items()
        # Only targets that changed are written: a member more in a group of thousands is a few records.
        if group.targets.get(member_id) != target
    )
    # A target goes with its member: at the next load it would be the target of nobody.
    left = tuple(gone(TargetKey(group.name, member_id)) for member_id in group.targets if member_id not in members)
    return Rebalance(epoch, (record, *changed, *left), made)


def _empty_since(group: Group, members: Mapping[str, MemberRecord], now: Now) -> int | None:
    if members:
        return None
    since = None if group.record is None else group.record.empty_since_ms
    # Since the last member left, and not since each later epoch: retention of committed offsets counts from there.
    return now.wall_ms if since is None else since


def _elected(group: Group, members: Mapping[str, MemberRecord]) -> str:
    """Returns the assignor that most members name; of equals the current one, then the first by name. Members that name
    none do not count."""
    used = DEFAULT_ASSIGNOR if group.record is None else group.record.assignor
    votes = Counter(member.assignor for member in members.values() if member.assignor is not None)
    # Members were checked by whatever version coordinated when they joined; a name that this one does not have is no
    # vote.
    names = [name for name in sorted(votes) if name in ASSIGNORS]
    # Of equals the one in use stays: another assignor moves most partitions.
    return min(names, key=lambda name: (-votes[name], name != used), default=DEFAULT_ASSIGNOR)


def _targets(
    members: Mapping[str, MemberRecord],
    subscribed: Mapping[str, tuple[str, ...]],
    targets: Mapping[str, Mapping[Partition, str]],
    view: TopicsView,
    assignor: str,
) -> Mapping[str, Mapping[Partition, str]]:
    # Sorted, because assignors go by the order: the same group has to get the same targets from any coordinator.
    subscribers = [
        Subscriber(member_id, subscribed[member_id], tuple(sorted(targets.get(member_id, NO_TARGET))))
        for member_id in sorted(members)
    ]
    topics = {name: view[name].partitions for names in subscribed.values() for name in names}
    assigned = ASSIGNORS[assignor](subscribers, topics)
    return {
        member_id: {partition: view[partition[0]].topic_id for partition in assigned[member_id]}
        for member_id in sorted(members)
    }


# -- who subscribes to what --------------------------------------------------------------------------------------------


def resolved(members: Mapping[str, MemberRecord], view: TopicsView) -> Mapping[str, tuple[str, ...]]:
    """Returns the existing topics that each member subscribes to, sorted."""
    topics_of = dict[tuple[tuple[str, ...], str], tuple[str, ...]]()
    resolved_topics = dict[str, tuple[str, ...]]()
    for member_id, member in members.items():
        # Thousands of members with one subscription match their pattern against all topics once.
        subscription = (member.topics, member.pattern)
        if subscription not in topics_of:
            topics_of[subscription] = _existing(*subscription, view)
        resolved_topics[member_id] = topics_of[subscription]
    return resolved_topics


def _existing(topics: tuple[str, ...], pattern: str, view: TopicsView) -> tuple[str, ...]:
    names = {name for name in topics if name in view}
    if pattern:
        names.update(filter(matcher(pattern), view))
    return tuple(sorted(names))


def digest(subscribed: Mapping[str, tuple[str, ...]], view: TopicsView) -> str:
    """Returns a digest of the subscribed topics' names, ids and sizes, the same on every broker."""
    # Sorted: the digest is compared by later coordinators, in other processes.
    names = sorted({name for names in frozenset(subscribed.values()) for name in names})
    text = "\n".join(f"{name} {view[name].topic_id} {view[name].partitions}" for name in names)
    return xxhash.xxh3_128_hexdigest(text.encode())


def has_other_topics(group: Group, view: TopicsView) -> bool:
    """Returns True if the members' subscribed topics have changed since their targets were made."""
    # Without members there is nobody to give a partition to, and whoever joins begins the next epoch anyway.
    if group.record is None or not group.members:
        return False
    return digest(resolved(group.members, view), view) != group.record.digest
