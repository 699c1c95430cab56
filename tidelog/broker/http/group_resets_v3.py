"""REST v3: resets a group's committed offsets, like `kafka-consumer-groups --reset-offsets`. Not in Confluent's REST
Proxy.

Either all partitions are reset, or none; and only while the group has no members, because a member would overwrite the
offsets by its next commit. `validate_only` returns the new offsets after the same checks, without setting them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from aiohttp import web
from msgspec import Meta, Struct

from tidelog.broker.face.face import BrokerFace
from tidelog.broker.face.groups import PATIENCE_S
from tidelog.broker.http.answers import json_answer
from tidelog.broker.http.body import read_json
from tidelog.broker.http.call import Call
from tidelog.broker.http.context import Context
from tidelog.broker.http.envelope import Links, Resource
from tidelog.broker.http.json_body import Body, Duration, OffsetNumber, PartitionNumber, TimestampMs
from tidelog.groups.resetting import NewOffset, PartitionOffsets, Reset, ResetTo, plan
from tidelog.model.access import Operation
from tidelog.model.errors import GroupNotEmpty, InvalidRequest, TidelogError, UnknownGroup, UnprocessableBody
from tidelog.model.groups import CommittedOffset, SetOffsets, check_group_name
from tidelog.model.ids import OFFSET_MAX
from tidelog.model.names import check_topic_name

Shift = Annotated[int, Meta(ge=-OFFSET_MAX, le=OFFSET_MAX)]


class TopicReset(Body):
    """A topic whose offsets are reset: in these partitions, or in all."""

    topic_name: str
    partition_ids: list[PartitionNumber] | None = None


class ResetAsked(Body):
    """The body of a reset. The target `to` needs one of `offset`, `timestamp` (ms), `duration_ms` and `shift_by`, or
    none; without `topics`, all partitions with a committed offset are reset.
    """

    to: Literal["earliest", "latest", "offset", "timestamp", "duration", "shift"]
    offset: OffsetNumber | None = None
    timestamp: TimestampMs | None = None
    duration_ms: Duration | None = None
    shift_by: Shift | None = None
    topics: list[TopicReset] | None = None
    validate_only: bool = False


class OffsetResetV3(Struct, frozen=True):
    """A partition's committed offset before (null if there was none) and after."""

    topic_name: str
    partition_id: int
    current_offset: int | None
    new_offset: int


class GroupResetV3(Resource, frozen=True):
    """The offsets that a reset has set, or with `validate_only` would set."""

    consumer_group_id: str
    validate_only: bool
    data: list[OffsetResetV3]


async def reset_offsets(context: Context, call: Call) -> web.StreamResponse:
    """Resets the offsets of a group without members, or (`validate_only`) shows the new ones."""
    links = Links(context, call)
    group = check_group_name(call.path["group"])
    body = await read_json(context, call, ResetAsked)
    reset = _reset(body, context.face.clock.wall_ms())
    context.require(call, Operation.READ, "Topic", [topic.topic_name for topic in body.topics or ()])  # there, or not
    committed = await _offsets_to_reset(context.face, group, call.started_s + PATIENCE_S)
    partitions = _partitions(context.face, body.topics, committed)
    if not 0 < len(partitions) <= context.limits.entries_max:
        raise UnprocessableBody(
            f"group {group} has no offsets to reset; name topics to give it some"
            if not partitions
            else f"{len(partitions)} partitions: reset at most {context.limits.entries_max} at once"
        )
    context.require(call, Operation.READ, "Topic", [topic for topic, _ in partitions])
    planned = plan(reset, await _partition_offsets(context.face, partitions, committed, reset.timestamp_ms))
    if not body.validate_only:
        if call.share is not None and not committed:
            await call.share.mutate(1)
        offsets = tuple(CommittedOffset(offset.topic, offset.partition, offset.new) for offset in planned)
        deadline_s = call.deadline_s(context)
        await context.face.groups.ask(SetOffsets(group=group, offsets=offsets), deadline_s=deadline_s)
    return json_answer(_shown(links, group, planned, validate_only=body.validate_only))


def _reset(body: ResetAsked, now_ms: int) -> Reset:
    """Returns the target of the reset. Raises `InvalidRequest` unless exactly the value is given that `to` needs."""
    values = {
        "offset": body.offset,
        "timestamp": body.timestamp,
        "duration_ms": body.duration_ms,
        "shift_by": body.shift_by,
    }
    needed_name = {"duration": "duration_ms", "shift": "shift_by"}.get(body.to, body.to)
    given = [name for name, value in values.items() if value is not None]
    needs = [needed_name] if needed_name in values else []
    if given != needs:
        raise InvalidRequest(
            f"to={body.to} needs {needs[0] if needs else 'no value'}; given {' and '.join(given) or 'is none'}"
        )
    value = values.get(needed_name) or 0
    if body.to == "duration":
        return Reset(ResetTo.TIMESTAMP, max(0, now_ms - value))
    return Reset(ResetTo(body.to), value)


async def _offsets_to_reset(face: BrokerFace, group: str, deadline_s: float) -> dict[tuple[str, int], int]:
    """Returns the group's committed offsets; none if the group does not exist. Raises `GroupNotEmpty` if it has
    members: the coordinator would refuse them too, but only after all the work, and not with `validate_only`.
    """
    try:
        description = await face.groups.describe(group, deadline_s)
    except UnknownGroup:
        return {}
    if description.members:
        count = len(description.members)
        raise GroupNotEmpty(
            f"group {group} has {count} {'member' if count == 1 else 'members'}, who would go on where they are; stop "
            "its consumers first (one that died counts until its session ends), then ask again"
        )
    return {
        (offset.topic, offset.partition): offset.offset
        for offset in await face.groups.committed_offsets(group, deadline_s)
    }


def _partitions(
    face: BrokerFace, topics: Sequence[TopicReset] | None, committed: Mapping[tuple[str, int], int]
) -> list[tuple[str, int]]:
    """Returns the partitions to reset, sorted by topic and number: those of `topics`, or all with a committed offset.
    Raises `UnknownTopic`; that the partitions exist is checked by `_partition_offsets`.
    """
    if topics is None:
        return sorted(committed)
    partitions = dict[tuple[str, int], None]()
    for entry in topics:
        topic = face.cluster.topic(check_topic_name(entry.topic_name))
        numbers = range(len(topic.partitions)) if entry.partition_ids is None else entry.partition_ids
        partitions.update({(topic.name, number): None for number in numbers})
    return sorted(partitions)


async def _partition_offsets(
    face: BrokerFace,
    partitions: Sequence[tuple[str, int]],
    committed: Mapping[tuple[str, int], int],
    timestamp_ms: int | None,
) -> list[PartitionOffsets]:
    """Returns for each partition the offsets from which its reset is computed: the committed offset, log start and high
    watermark and, with a timestamp (ms), the first offset of that time or later. Raises `UnknownPartition`, or
    `LeaderNotAvailable` if the leader of one partition cannot be asked.
    """
    handles = [face.partitions.handle(*partition) for partition in partitions]
    extents_and_records = list[PartitionOffsets]()
    for partition, offsets in zip(
        partitions, await face.partitions.offsets_of([(handle, timestamp_ms) for handle in handles]), strict=True
    ):
        if isinstance(offsets, TidelogError):
            raise offsets
        extent, record = offsets.extent, offsets.record
        extents_and_records.append(
            PartitionOffsets(
                *partition,
                committed.get(partition),
                extent.log_start_offset,
                extent.high_watermark,
                None if record is None else record[0],
            )
        )
    return extents_and_records


def _shown(links: Links, group: str, planned: Sequence[NewOffset], *, validate_only: bool) -> GroupResetV3:
    data = [OffsetResetV3(offset.topic, offset.partition, offset.current, offset.new) for offset in planned]
    return GroupResetV3(
        *links.resource("KafkaConsumerGroupReset", "consumer-groups", group, "offsets:reset"),
        group,
        validate_only,
        data,
    )
