"""Decisions about REST consumer instances: create, configure, delete, describe.

Membership is not handled here: an instance that subscribes is also a group member, whose heartbeats its broker sends.
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
    """Creates a REST consumer instance. Raises `InstanceExists`."""
    check_instance_name(request.instance, "consumer instance")
    if (request.group, request.instance) in shard.instances:
        raise InstanceExists(
            f"group {request.group} has a consumer instance {request.instance} already; delete it, or take another name"
        )
    return _done(InstanceRecord(request.group, request.instance, request.settings))


def configure_instance(shard: Shard, request: ConfigureInstance) -> Decision:
    """Changes what an instance reads. Raises `UnknownInstance`, `IllegalState`, and `InvalidRequest` for an invalid
    pattern."""
    record = instance_of(shard, request.group, request.instance)
    is_subscribing = bool(request.topics or request.pattern)
    # Compiled to be refused now, or the pattern would be met in the rebalance of a whole group.
    if request.pattern:
        matcher(request.pattern)
    # As in Kafka's consumer, subscribing and assigning exclude each other: an assigned instance is no member of the
    # group.
    if is_subscribing and (record.assigned or request.assigned):
        raise IllegalState(f"{request.instance} is assigned partitions; take them back before it subscribes")
    if request.assigned and (record.topics or record.pattern):
        raise IllegalState(f"{request.instance} has subscribed; end that before it is assigned partitions")
    configured = msgspec.structs.replace(
        record, topics=request.topics, pattern=request.pattern, assigned=request.assigned
    )
    # A repetition finds its work done, and writes nothing.
    return _done() if configured == record else _done(configured)


def delete_instance(shard: Shard, request: DeleteInstance) -> Decision:
    """Deletes an instance. Raises `UnknownInstance`."""
    return _done(gone(instance_of(shard, request.group, request.instance).key))


def describe_instance(shard: Shard, request: DescribeInstance) -> Decision:
    """Describes an instance. Raises `UnknownInstance`."""
    record = instance_of(shard, request.group, request.instance)
    return Decision((), InstanceDescription(record.settings, record.topics, record.pattern, record.assigned))


def list_instances(shard: Shard) -> Decision:
    """Lists all REST consumer instances of the shard, sorted by group and name."""
    return Decision((), InstancesListed(tuple(InstanceListed(*key) for key in sorted(shard.instances))))


def instance_of(shard: Shard, group: str, instance: str) -> InstanceRecord:
    """Returns the record of an instance. Raises `UnknownInstance`."""
    record = shard.instances.get((group, instance))
    if record is None:
        raise unknown_instance(group, instance)
    return record


def _done(*records: GroupLogRecord) -> Decision:
    return Decision(records, GroupDone())
