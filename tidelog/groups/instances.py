"""Deciding about REST consumer instances: that they are there, and what they read.

Nothing here is about members: an instance that subscribes is a member like any other, and its broker speaks for it.
"""

from __future__ import annotations

import msgspec

from tidelog.groups.decision import Decision
from tidelog.groups.patterns import matcher
from tidelog.groups.records import GroupLogRecord, InstanceRecord, gone
from tidelog.groups.shard import Shard
from tidelog.model.errors import IllegalState, InstanceExists
from tidelog.model.groups import (
    ConfigureInstance,
    CreateInstance,
    DeleteInstance,
    DescribeInstance,
    GroupDone,
    InstanceDescription,
    InstanceListed,
    InstancesListed,
    check_instance_name,
    unknown_instance,
)


def create_instance(shard: Shard, request: CreateInstance) -> Decision:
    """Raises `InstanceExists`."""
    check_instance_name(request.instance, "consumer instance")
    if (request.group, request.instance) in shard.instances:
        raise InstanceExists(
            f"group {request.group} has a consumer instance {request.instance} already; delete it, or take another name"
        )
    return _done(InstanceRecord(request.group, request.instance, request.settings))


def configure_instance(shard: Shard, request: ConfigureInstance) -> Decision:
    """Raises `UnknownInstance`, `IllegalState`, and `InvalidRequest` for a pattern that is none."""
    found = instance_of(shard, request.group, request.instance)
    is_subscribing = bool(request.topics or request.pattern)
    if request.pattern:
        matcher(request.pattern)
    if is_subscribing and (found.assigned or request.assigned):
        raise IllegalState(f"{request.instance} is assigned partitions; take them back before it subscribes")
    if request.assigned and (found.topics or found.pattern):
        raise IllegalState(f"{request.instance} has subscribed; end that before it is assigned partitions")
    wanted = msgspec.structs.replace(found, topics=request.topics, pattern=request.pattern, assigned=request.assigned)
    return _done() if wanted == found else _done(wanted)


def delete_instance(shard: Shard, request: DeleteInstance) -> Decision:
    """Raises `UnknownInstance`."""
    return _done(gone(instance_of(shard, request.group, request.instance).key))


def describe_instance(shard: Shard, request: DescribeInstance) -> Decision:
    """Raises `UnknownInstance`."""
    found = instance_of(shard, request.group, request.instance)
    return Decision((), InstanceDescription(found.settings, found.topics, found.pattern, found.assigned))


def list_instances(shard: Shard) -> Decision:
    """All of them, by group and name."""
    return Decision((), InstancesListed(tuple(InstanceListed(*key) for key in sorted(shard.instances))))


def instance_of(shard: Shard, group: str, instance: str) -> InstanceRecord:
    """Raises `UnknownInstance`."""
    found = shard.instances.get((group, instance))
    if found is None:
        raise unknown_instance(group, instance)
    return found


def _done(*records: GroupLogRecord) -> Decision:
    return Decision(records, GroupDone())
