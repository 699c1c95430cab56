"""The core of a group coordinator: `decide(shard, request, ...) -> Decision(records, answer)`.

Pure. A decision changes nothing by itself; its records take effect through `Shard.apply`. A refused request raises a
`TidelogError` and has no effect. A request that is repeated because its answer was lost gets the same answer again.
"""

from __future__ import annotations

from tidelog.groups import decide_groups, decide_members, decide_offsets, instances
from tidelog.groups.decision import Decision
from tidelog.groups.settings import GroupSettings, Now, TopicsView
from tidelog.groups.shard import Shard
from tidelog.model.groups import (
    AnyGroupRequest,
    CommitOffsets,
    ConfigureInstance,
    CreateInstance,
    DeleteGroup,
    DeleteInstance,
    DescribeGroup,
    DescribeInstance,
    FetchOffsets,
    Heartbeat,
    ListGroups,
    ListInstances,
    SetOffsets,
)


def decide(shard: Shard, request: AnyGroupRequest, view: TopicsView, settings: GroupSettings, now: Now) -> Decision:
    """Decides a request. Raises the `TidelogError` with which the request is refused; the docstring of the request's
    class names the possible errors."""
    match request:
        case Heartbeat():
            return decide_members.heartbeat(shard, request, view, settings, now)
        case CommitOffsets():
            return decide_offsets.commit(shard, request, view, settings, now)
        case FetchOffsets():
            return decide_offsets.fetch(shard, request, view)
        case SetOffsets():
            return decide_offsets.set_offsets(shard, request, view, settings, now)
        case DeleteGroup():
            return decide_groups.delete(shard, request)
        case DescribeGroup():
            return decide_groups.describe(shard, request, view)
        case ListGroups():
            return decide_groups.list_groups(shard)
    return _decide_instance(shard, request)


def _decide_instance(shard: Shard, request: AnyGroupRequest) -> Decision:
    match request:
        case CreateInstance():
            return instances.create_instance(shard, request)
        case ConfigureInstance():
            return instances.configure_instance(shard, request)
        case DeleteInstance():
            return instances.delete_instance(shard, request)
        case DescribeInstance():
            return instances.describe_instance(shard, request)
        case ListInstances():
            return instances.list_instances(shard)
    raise AssertionError(f"no decision is known for {request!r}")


has_news = decide_members.has_news
unchanged = decide_members.unchanged
