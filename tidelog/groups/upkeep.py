"""The changes of groups by the clock, and when the cluster's topics change; as records, decided on the shard as it is.

expelled       members that were not heard of for their session, or did not give up what they were told to; static
               members that are away for longer than their session are among the first
with_topics    groups whose topics appeared, grew, vanished or were created anew: their next epoch
expired        committed offsets that nobody needs any more, and groups of which nothing else is left
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
    """Returns the records that expel these members, given by group and id. An id that is no member's is passed over."""
    of_group = dict[str, list[str]]()
    for name, member_id in members:
        group = shard.groups.get(name)
        # The member may have left since its deadline was found to be over.
        if group is not None and member_id in group.members:
            # One rebalance for each group, however many members go: each epoch moves partitions.
            of_group.setdefault(name, []).append(member_id)
    return tuple(record for name, left in of_group.items() for record in without(shard.groups[name], left, view, now))


def with_topics(shard: Shard, view: TopicsView, now: Now) -> tuple[GroupLogRecord, ...]:
    """Returns the records of the groups that subscribe to a topic which appeared, grew, vanished or was created
    anew."""
    return tuple(
        record
        for _, group in sorted(shard.groups.items())
        if has_other_topics(group, view)
        for record in rebalance(group, group.members, group.targets, view, now).records
    )


def expired(shard: Shard, view: TopicsView, settings: GroupSettings, now: Now) -> tuple[GroupLogRecord, ...]:
    """Returns tombstones: of committed offsets, in groups without members, that were neither committed nor in use
    within the retention time; of committed offsets in deleted topics; and of groups that have neither members nor
    committed offsets."""
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
