"""Table of the group request types and their handlers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tidelog.broker.kafka.apis import Key
from tidelog.broker.kafka.groups.classic_members import heartbeat, join_group, leave_group, sync_group
from tidelog.broker.kafka.groups.consumer_heartbeat import consumer_group_heartbeat
from tidelog.broker.kafka.groups.deleting import delete_groups, offset_delete
from tidelog.broker.kafka.groups.describing import consumer_group_describe, describe_groups, list_groups
from tidelog.broker.kafka.groups.find_coordinator import find_coordinator
from tidelog.broker.kafka.groups.offset_commit import offset_commit
from tidelog.broker.kafka.groups.offset_fetch import offset_fetch
from tidelog.broker.kafka.groups.trees import GroupCall

GROUP_CALLS: Final[Mapping[Key, GroupCall]] = MappingProxyType(
    {
        Key.OFFSET_COMMIT: offset_commit,
        Key.OFFSET_FETCH: offset_fetch,
        Key.FIND_COORDINATOR: find_coordinator,
        Key.JOIN_GROUP: join_group,
        Key.HEARTBEAT: heartbeat,
        Key.LEAVE_GROUP: leave_group,
        Key.SYNC_GROUP: sync_group,
        Key.DESCRIBE_GROUPS: describe_groups,
        Key.LIST_GROUPS: list_groups,
        Key.DELETE_GROUPS: delete_groups,
        Key.OFFSET_DELETE: offset_delete,
        Key.CONSUMER_GROUP_HEARTBEAT: consumer_group_heartbeat,
        Key.CONSUMER_GROUP_DESCRIBE: consumer_group_describe,
    }
)
