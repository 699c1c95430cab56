"""The group protocol for smart clients: a member's heartbeat, and the group's committed offsets (KIP-848;
`tidelog.model.groups`).

Bodies are the structs of the model without `group`, which the path names. Any broker takes them and forwards them to
the group's coordinator; the answer to a heartbeat names the coordinator, so that the client can send the next one
there.

A heartbeat may wait for a new assignment. The wait ends when the listener stops: then the outcome is unknown, and the
member asks another broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from aiohttp import web
from msgspec import Meta
from msgspec.structs import asdict

from tidelog.broker.http.answers import json_answer
from tidelog.broker.http.body import read_json
from tidelog.broker.http.call import Call
from tidelog.broker.http.context import Context
from tidelog.broker.http.json_body import Body, Duration, OffsetNumber, PartitionNumber
from tidelog.broker.http.params import INT32_MAX
from tidelog.model.access import Operation
from tidelog.model.errors import CoordinatorLost, UnprocessableBody
from tidelog.model.groups import (
    JOIN,
    LEAVE_STATIC,
    NO_EPOCH,
    CommitOffsets,
    CommittedOffset,
    FetchOffsets,
    Heartbeat,
    TopicPartitions,
    check_group_name,
    grouped,
)

MemberEpoch = Annotated[int, Meta(ge=LEAVE_STATIC, le=INT32_MAX)]
LeaderEpoch = Annotated[int, Meta(ge=-1, le=INT32_MAX)]


class PartitionsAsked(Body):
    """Partitions of one topic."""

    topic: str
    partitions: list[PartitionNumber]


class HeartbeatAsked(Body):
    """The heartbeat of a group member. Null means unchanged since the last one; a member that joins (`member_epoch` 0)
    sends all fields.
    """

    member_id: str
    member_epoch: MemberEpoch
    instance_id: str | None = None
    client_id: str = ""
    rack: str | None = None
    topics: list[str] | None = None
    pattern: str | None = None
    assignor: str | None = None
    session_timeout_ms: Duration | None = None
    rebalance_timeout_ms: Duration | None = None
    owned: list[PartitionsAsked] | None = None
    wait_ms: Duration = 0


class OffsetAsked(Body):
    """An offset to commit for a group in a partition: `offset` is the next one to read."""

    topic: str
    partition: PartitionNumber
    offset: OffsetNumber
    leader_epoch: LeaderEpoch = -1
    metadata: str = ""


class CommitAsked(Body):
    """Offsets to commit. A caller that is not a group member leaves out the member fields."""

    offsets: list[OffsetAsked]
    member_id: str = ""
    member_epoch: MemberEpoch = NO_EPOCH
    sequence: OffsetNumber = 0


class OffsetsAsked(Body):
    """The partitions whose committed offsets are requested; null for all that the group has."""

    partitions: list[PartitionsAsked] | None = None
    member_id: str = ""
    member_epoch: MemberEpoch = NO_EPOCH


async def post_heartbeat(context: Context, call: Call) -> web.StreamResponse:
    """Sends a group member's heartbeat, and returns its assignment."""
    body = await read_json(context, call, HeartbeatAsked)
    context.require_subscription(call, body.topics or (), body.pattern)
    if call.share is not None and body.member_epoch == JOIN:
        await call.share.mutate(1)
    heartbeat = Heartbeat(
        **asdict(body)
        | {
            "group": _group(call),
            "client_host": call.request.remote or "",
            "topics": None if body.topics is None else tuple(body.topics),
            "owned": None if body.owned is None else _partitions(context, body.owned),
            "wait_ms": min(body.wait_ms, context.limits.request_timeout_ms_max),
        }
    )
    return await _ask(context, call, heartbeat)


async def commit_offsets(context: Context, call: Call) -> web.StreamResponse:
    """Commits offsets of a group, with a result for each."""
    body = await read_json(context, call, CommitAsked)
    _check_count(context, len(body.offsets))
    context.require(call, Operation.READ, "Topic", [offset.topic for offset in body.offsets])
    commit = CommitOffsets(
        group=_group(call),
        member_id=body.member_id,
        member_epoch=body.member_epoch,
        sequence=body.sequence,
        offsets=tuple(CommittedOffset(**asdict(offset)) for offset in body.offsets),
    )
    return await _ask(context, call, commit)


async def fetch_offsets(context: Context, call: Call) -> web.StreamResponse:
    """Returns the committed offsets of a group, in the named partitions or in all."""
    body = await read_json(context, call, OffsetsAsked)
    context.require(call, Operation.DESCRIBE, "Topic", [entry.topic for entry in body.partitions or ()])
    fetch = FetchOffsets(
        group=_group(call),
        member_id=body.member_id,
        member_epoch=body.member_epoch,
        partitions=None if body.partitions is None else _partitions(context, body.partitions),
    )
    return await _ask(context, call, fetch)


def _group(call: Call) -> str:
    return check_group_name(call.path["group"])


def _partitions(context: Context, entries: Sequence[PartitionsAsked]) -> tuple[TopicPartitions, ...]:
    """Returns the partitions grouped by topic, each topic once, in ascending order. Raises `UnprocessableBody` if there
    are too many.
    """
    partitions = [(entry.topic, partition) for entry in entries for partition in entry.partitions]
    _check_count(context, len(partitions))
    return grouped(partitions)


def _check_count(context: Context, count: int) -> None:
    if count > context.limits.entries_max:
        raise UnprocessableBody(f"{count} partitions: name at most {context.limits.entries_max} in one request")


async def _ask(context: Context, call: Call, request: Heartbeat | CommitOffsets | FetchOffsets) -> web.Response:
    """Returns the coordinator's answer, by the deadline of the client or the broker. Raises `CoordinatorLost` if none
    came.
    """
    deadline_s = call.deadline_s(context)
    answer = None
    async with context.admission.waits.until(deadline_s):
        answer = await context.face.groups.ask(request, deadline_s=deadline_s)
    if answer is None:
        raise CoordinatorLost("the answer did not come in time, or this broker is shutting down; ask again, or another")
    return json_answer(answer)
