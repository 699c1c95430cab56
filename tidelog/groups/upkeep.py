"""Changes of groups that no request causes, as records decided on the shard.

expelled       removes members whose session has expired or that did not revoke partitions in time; static members that
               are away for longer than their session included
with_topics    begins the next epoch of groups with a subscribed topic that was created, grew, was deleted or was
               created anew
expired        deletes expired committed offsets, and groups of which nothing else is left
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.groups.decide_leaves import without
from tidelog.groups.group import Group
from tidelog.groups.rebalance import has_other_topics, rebalance
from tidelog.groups.records import ClassicKey, GroupKey, GroupLogRecord, OffsetRecord, gone
from tidelog.groups.settings import GroupSettings, Now, TopicsView
from tidelog.groups.shard import Shard


def expelled(
    shard: Shard, members: Iterable[tuple[str, str]], view: TopicsView, now: Now
) -> tuple[GroupLogRecord, ...]:
    """Returns the records that remove these members, given by group and id. Unknown members are ignored."""
    of_group = dict[str, list[str]]()
    for name, member_id in members:
        group = shard.groups.get(name)
        # The member may have left since its deadline was found to be over.
        if group is not None and member_id in group.members:
            # One rebalance for each group, however many members go: each epoch moves partitions.
            of_group.setdefault(name, []).append(member_id)
    return tuple(record for name, left in of_group.items() for record in without(shard.groups[name], left, view, now))


def with_topics(shard: Shard, view: TopicsView, now: Now) -> tuple[GroupLogRecord, ...]:
    """Returns the records of groups with a subscribed topic that was created, grew, was deleted or was created anew."""
    return tuple(
        record
        for _, group in sorted(shard.groups.items())
        if has_other_topics(group, view)
        for record in rebalance(group, group.members, group.targets, view, now).records
    )


def expired(shard: Shard, view: TopicsView, settings: GroupSettings, now: Now) -> tuple[GroupLogRecord, ...]:
    """Returns tombstones of committed offsets that have expired (no members and no commit within the retention time) or
    whose topic is deleted, and of groups with neither members nor committed offsets."""
    records = list[GroupLogRecord]()
    for _, group in sorted(shard.groups.items()):
        over = [committed for committed in group.offsets.values() if _is_over(group, committed, view, settings, now)]
        records += [gone(committed.key) for committed in over]
        # An empty group with committed offsets is still a group: its readers may be stopped for a while.
        if not group.has_members and len(over) == len(group.offsets):
            kinds = ((group.record, GroupKey), (group.classic_record, ClassicKey))
            records += [gone(key(group.name)) for record, key in kinds if record is not None]
    return tuple(records)


def _is_over(group: Group, committed: OffsetRecord, view: TopicsView, settings: GroupSettings, now: Now) -> bool:
    seen = view.get(committed.topic)
    # Also in a group at work: an offset of a deleted topic says nothing about one that has its name.
    if seen is None or seen.topic_id != committed.topic_id:
        return True
    # A member that is slow, or reads a quiet partition, may commit again at any time.
    if group.has_members:
        return False
    # The retention time counts from when the group was last in use, as since KIP-211: not from the commit alone.
    used_ms = max(committed.committed_ms, group.empty_since_ms or 0)
    return now.wall_ms - used_ms >= settings.offsets_retention_ms
