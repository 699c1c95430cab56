"""`Shard`: all groups of one partition of `__consumer_offsets`.

`apply` is the only way to change a shard. Its state is the last record of each key. So replaying the log from its
beginning, or from a complete copy of the live records, gives the same shard as the one that decided them.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tidelog.groups.group import Group
from tidelog.groups.records import (
    MEMBER_KEYS,
    AnyKey,
    ClassicRecord,
    Gone,
    GroupLogRecord,
    InstanceKey,
    InstanceRecord,
)
from tidelog.model.errors import GroupFull


class Shard:
    """All groups and REST consumers of one partition of `__consumer_offsets`, changed by `apply` only."""

    def __init__(self) -> None:
        self.groups = dict[str, Group]()
        self.instances = dict[tuple[str, str], InstanceRecord]()
        """REST consumer instances, by group and name."""

    def known_or_new(self, name: str, groups_max: int) -> Group:
        """Returns the group of this name, or a new one not yet added to the shard. Raises `GroupFull` if the shard has
        too many groups."""
        group = self.groups.get(name)
        # Any name makes a group, so the number is bounded before there is one.
        if group is None and len(self.groups) >= groups_max:
            raise GroupFull(
                f"there are {len(self.groups)} groups in the partition that would keep {name!a}, and may be no more "
                f"than {groups_max} (offsets.topic.partition.groups.max); delete those that are not used"
            )
        return Group(name) if group is None else group

    def apply(self, record: GroupLogRecord) -> None:
        """Applies a record that is in the log, or about to be appended."""
        match record:
            case Gone():
                self._remove(record.of)
            case InstanceRecord():
                self.instances[record.group, record.instance] = record
            case _:
                group = self.groups.get(record.group)
                if group is None:
                    group = self.groups[record.group] = Group(record.group)
                group.apply(record)

    def _remove(self, key: AnyKey) -> None:
        if isinstance(key, InstanceKey):
            self.instances.pop((key.group, key.instance), None)
            return
        group = self.groups.get(key.group)
        if group is not None:
            group.remove(key)
            # The log has no key of the group any more; kept, it would count against the bound for ever.
            if group.is_nothing:
                del self.groups[key.group]

    def forget_members(self, now_ms: int) -> None:
        """Removes all members from all groups, because a part of the log is lost. Epochs and generations rise, so that
        a former member cannot pass for a new one."""
        for group in self.groups.values():
            # A member that the lost part had removed, or moved, may else share its partitions with a newer owner.
            for key in list(group.live_keys()):
                if isinstance(key, MEMBER_KEYS):
                    group.remove(key)
            # A group that was empty before keeps its time, from which the retention of its committed offsets counts.
            if group.record is not None and group.record.empty_since_ms is None:
                group.apply(msgspec.structs.replace(group.record, epoch=group.record.epoch + 1, empty_since_ms=now_ms))
            if group.classic_record is not None and group.classic_record.empty_since_ms is None:
                group.apply(ClassicRecord(group.name, group.classic_record.generation + 1, empty_since_ms=now_ms))

    def live_records(self) -> Iterator[GroupLogRecord]:
        """Yields all live records; the shard may change meanwhile. Each is the newest of its key when yielded, so it
        may be appended before any record decided after that. Keys added during the iteration are left out: their
        records are in the log anyway."""
        # A fixed list of keys, but each key's newest record: so a copy is never older than what is decided beside it.
        for key in list(self._keys()):
            record = self._record_of(key)
            if record is not None:
                yield record

    @property
    def live_count(self) -> int:
        """Number of records that `live_records` would yield now."""
        return sum(group.count for group in self.groups.values()) + len(self.instances)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Shard):
            return NotImplemented
        return {record.key: record for record in self.live_records()} == {
            record.key: record for record in other.live_records()
        }

    __hash__ = None  # type: ignore[assignment]  # it changes

    def _keys(self) -> Iterator[AnyKey]:
        for group in self.groups.values():
            yield from group.live_keys()
        for name, instance in self.instances:
            yield InstanceKey(name, instance)

    def _record_of(self, key: AnyKey) -> GroupLogRecord | None:
        if isinstance(key, InstanceKey):
            return self.instances.get((key.group, key.instance))
        group = self.groups.get(key.group)
        return None if group is None else group.record_of(key)
