"""REST v3: consumer groups, their members and their assignments; and the deletion of groups, which Confluent's REST
Proxy does not have.

Any broker answers, by asking the group's coordinator. Shapes and names are Confluent's; additional fields are a
member's epoch (`member_epoch`), its host, and its partitions in one list, so that a whole group takes two requests, not
one for each member.
"""

from __future__ import annotations

from aiohttp import web
from msgspec import Struct

from tidelog.broker.face.groups import PATIENCE_S
from tidelog.broker.http.answers import json_answer, no_content
from tidelog.broker.http.call import Call
from tidelog.broker.http.context import Context
from tidelog.broker.http.envelope import Links, Related, Resource
from tidelog.model.access import Operation
from tidelog.model.errors import NotFound
from tidelog.model.groups import (
    DeleteGroup,
    GroupDescription,
    GroupListed,
    MemberDescription,
    TopicPartitions,
    check_group_name,
    check_member_id,
    pairs,
)


class ConsumerGroupV3(Resource, frozen=True):
    """A consumer group. `type` is `CONSUMER` if the coordinator assigns the partitions (KIP-848), with the states
    `EMPTY`, `ASSIGNING`, `RECONCILING` and `STABLE`; or `CLASSIC` if a member does, with `EMPTY`,
    `PREPARING_REBALANCE`, `COMPLETING_REBALANCE` and `STABLE`. The `group_epoch` of a classic group is its generation;
    `protocol_type` is `consumer` for consumers. A simple group has committed offsets, and never had a member.
    """

    consumer_group_id: str
    is_simple: bool
    partition_assignor: str
    state: str
    type: str
    is_mixed_consumer_group: bool
    members_count: int
    group_epoch: int
    protocol_type: str
    coordinator_id: int
    coordinator: Related
    consumers: Related
    lag_summary: Related


class TopicOwnedV3(Struct, frozen=True):
    """Partitions of one topic."""

    topic_name: str
    partition_ids: list[int]


class ConsumerV3(Resource, frozen=True):
    """A member of a group. `owned` is what it may read now, including what it has still to give up; `target` what it
    will have after the rebalance. `pattern` is its subscription by regular expression, empty if it has none.
    """

    consumer_group_id: str
    consumer_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rack: str | None
    member_epoch: int
    topics: list[str]
    pattern: str
    owned: list[TopicOwnedV3]
    target: list[TopicOwnedV3]
    assignments: Related


class AssignmentV3(Resource, frozen=True):
    """A partition assigned to a member."""

    consumer_group_id: str
    consumer_id: str
    topic_name: str
    partition_id: int
    partition: Related
    lag: Related


# -- groups ----------------------------------------------------------------------------------------------------------


async def list_groups(context: Context, call: Call) -> web.StreamResponse:
    """Lists the consumer groups."""
    links = Links(context, call)
    groups = await context.face.groups.list_groups(deadline_s=call.started_s + PATIENCE_S)
    groups = [group for group in groups if context.may(call, Operation.DESCRIBE, "Group", group.group)]
    return json_answer(
        links.list_of("KafkaConsumerGroup", [_group(links, group) for group in groups], "consumer-groups")
    )


async def get_group(context: Context, call: Call) -> web.StreamResponse:
    """Returns a consumer group."""
    links = Links(context, call)
    return json_answer(_group(links, await group_of(context, call)))


async def delete_group(context: Context, call: Call) -> web.StreamResponse:
    """Deletes a group without members, and its committed offsets."""
    group = check_group_name(call.path["group"])
    if call.share is not None:
        await call.share.mutate(1)
    await context.face.groups.ask(DeleteGroup(group=group), deadline_s=call.deadline_s(context))
    return no_content()


async def group_of(context: Context, call: Call) -> GroupDescription:
    """Returns the group of the path. Raises `UnknownGroup`."""
    return await context.face.groups.describe(check_group_name(call.path["group"]), call.started_s + PATIENCE_S)


def _group(links: Links, group: GroupListed | GroupDescription) -> ConsumerGroupV3:
    segments = ("consumer-groups", group.group)
    return ConsumerGroupV3(
        *links.resource("KafkaConsumerGroup", *segments),
        group.group,
        group.is_simple,
        group.assignor,
        spelled_out(group.state).upper(),
        group.kind.upper(),
        False,  # a group has members of one kind
        group.members if isinstance(group, GroupListed) else len(group.members),
        group.group_epoch,
        group.protocol_type,
        group.coordinator,
        links.related("brokers", group.coordinator),
        links.related(*segments, "consumers"),
        links.related(*segments, "lag-summary"),
    )


def spelled_out(state: str) -> str:
    """Returns a state such as `PreparingRebalance` as `Preparing_Rebalance`."""
    return "".join(f"_{char}" if at and char.isupper() else char for at, char in enumerate(state))


# -- members ---------------------------------------------------------------------------------------------------------


async def list_consumers(context: Context, call: Call) -> web.StreamResponse:
    """Lists the members of a group."""
    links = Links(context, call)
    group = await group_of(context, call)
    data = [_consumer(links, group, member) for member in group.members]
    return json_answer(links.list_of("KafkaConsumer", data, "consumer-groups", group.group, "consumers"))


async def get_consumer(context: Context, call: Call) -> web.StreamResponse:
    """Returns a member of a group."""
    links = Links(context, call)
    group = await group_of(context, call)
    return json_answer(_consumer(links, group, _member(group, call)))


async def list_assignments(context: Context, call: Call) -> web.StreamResponse:
    """Lists the partitions assigned to a member."""
    links = Links(context, call)
    group = await group_of(context, call)
    member = _member(group, call)
    data = [_assignment(links, group, member, *partition) for partition in pairs(member.owned)]
    segments = ("consumer-groups", group.group, "consumers", member.member_id, "assignments")
    return json_answer(links.list_of("KafkaConsumerAssignment", data, *segments))


async def get_assignment(context: Context, call: Call) -> web.StreamResponse:
    """Returns a partition that is assigned to a member."""
    links = Links(context, call)
    group = await group_of(context, call)
    member = _member(group, call)
    partition = (call.topic_name(), call.partition_number())
    if partition not in pairs(member.owned):
        raise NotFound(f"member {member.member_id} of group {group.group} does not have {partition[0]}-{partition[1]}")
    return json_answer(_assignment(links, group, member, *partition))


def _member(group: GroupDescription, call: Call) -> MemberDescription:
    name = check_member_id(call.path["consumer"])
    for member in group.members:
        if member.member_id == name:
            return member
    raise NotFound(f"group {group.group} has no member {name}")


def _consumer(links: Links, group: GroupDescription, member: MemberDescription) -> ConsumerV3:
    segments = ("consumer-groups", group.group, "consumers", member.member_id)
    return ConsumerV3(
        *links.resource("KafkaConsumer", *segments),
        group.group,
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rack,
        member.member_epoch,
        list(member.topics),
        member.pattern,
        _by_topic(member.owned),
        _by_topic(member.target),
        links.related(*segments, "assignments"),
    )


def _by_topic(partitions: tuple[TopicPartitions, ...]) -> list[TopicOwnedV3]:
    return [TopicOwnedV3(entry.topic, list(entry.partitions)) for entry in partitions]


def _assignment(
    links: Links, group: GroupDescription, member: MemberDescription, topic: str, partition: int
) -> AssignmentV3:
    segments = ("consumer-groups", group.group, "consumers", member.member_id, "assignments")
    return AssignmentV3(
        *links.resource("KafkaConsumerAssignment", *segments, topic, "partitions", partition),
        group.group,
        member.member_id,
        topic,
        partition,
        links.related("topics", topic, "partitions", partition),
        links.related("consumer-groups", group.group, "lags", topic, "partitions", partition),
    )
