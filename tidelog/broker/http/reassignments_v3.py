"""REST v3: partition reassignments. Their listing is Confluent's; beginning and cancelling one, rebalancing and leader
elections are additions.

A reassignment has begun when its request is answered, and is over when the partition is no longer listed. Its state is
in the metadata, so it goes on under any controller, and any broker can be asked about it. One throttle applies to all
reassignments of the cluster: a request that names one sets it (0 removes it), and it ends with the last reassignment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aiohttp import web
from msgspec import Struct

from tidelog.broker.http.answers import json_answer, no_content
from tidelog.broker.http.body import read_json
from tidelog.broker.http.call import Call
from tidelog.broker.http.context import Context
from tidelog.broker.http.envelope import Links, PartitionResource, Related, ResourceList
from tidelog.broker.http.json_body import Body, ByteRate, NodeNumber, PartitionNumber
from tidelog.broker.http.topics_v2 import partition_of
from tidelog.controller.partition_commands import MOVES_MAX, ElectionType, ElectLeaders, NewReplicas, PartitionNamed
from tidelog.model.cluster import PartitionInfo, Topic
from tidelog.model.errors import NotFound, UnknownPartition
from tidelog.model.names import check_topic_name


class ReassignmentV3(PartitionResource, frozen=True):
    """A partition whose replicas are reassigned. `target_replicas` are the future ones; `isr` shows the progress: the
    reassignment is over when all targets are in it. `throttle_bytes_per_s` applies to all reassignments, on each
    broker; null without one.
    """

    adding_replicas: list[int]
    removing_replicas: list[int]
    target_replicas: list[int]
    isr: list[int]
    throttle_bytes_per_s: int | None
    replicas: Related


class MoveAsked(Body):
    """The requested replicas of a partition, the preferred leader first."""

    topic_name: str
    partition_id: PartitionNumber
    replicas: list[NodeNumber]


class MovesAsked(Body):
    """The body that begins reassignments, all or none."""

    data: list[MoveAsked]
    throttle_bytes_per_s: ByteRate | None = None


class RebalanceAsked(Body):
    """The body of a rebalance: `leaving` are brokers that shall have no replicas any more."""

    leaving: list[NodeNumber] | None = None
    validate_only: bool = False
    throttle_bytes_per_s: ByteRate | None = None


class MovePlanned(Struct, frozen=True):
    """A reassignment of one partition that begins, or with `validate_only` would begin."""

    topic_name: str
    partition_id: int
    replicas: list[int]


class Planned(Struct, frozen=True):
    """The reassignments that a rebalance begins; none if the load is even."""

    data: list[MovePlanned]


class PartitionAsked(Body):
    """A partition, by its topic's name."""

    topic_name: str
    partition_id: PartitionNumber


class ElectionAsked(Body):
    """The body of an election; without `data`, for all partitions."""

    election_type: ElectionType = ElectionType.PREFERRED
    data: list[PartitionAsked] | None = None


class ElectionShown(Struct, frozen=True):
    """The result of the election of one partition: `none` is success, as in Kafka's error codes."""

    topic_name: str
    partition_id: int
    leader: int
    error: str


class ElectionsShown(Struct, frozen=True):
    """The result for each named partition; if none was named, only for those whose leader has changed."""

    data: list[ElectionShown]


MOVES_SHOWN: Final = 10


# -- what moves ----------------------------------------------------------------------------------------------------


async def list_all(context: Context, call: Call) -> web.StreamResponse:
    """Lists all partitions whose replicas are reassigned."""
    links = Links(context, call)
    topics = context.face.cluster.image.topics
    return json_answer(_shown(links, [topics[name] for name in context.visible(call, "Topic", sorted(topics))], "-"))


async def list_of_topic(context: Context, call: Call) -> web.StreamResponse:
    """Lists the partitions of a topic whose replicas are reassigned."""
    links = Links(context, call)
    topic = context.face.cluster.topic(call.topic_name())
    return json_answer(_shown(links, [topic], topic.name))


async def get_one(context: Context, call: Call) -> web.StreamResponse:
    """Returns the reassignment of a partition; 404 if there is none."""
    links = Links(context, call)
    topic, info = partition_of(context, call)
    if not info.is_moving:
        raise NotFound(f"the replicas of {topic.name}-{info.partition} do not move")
    return json_answer(_reassignment(links, topic, info))


def _shown(links: Links, topics: Sequence[Topic], name: str) -> ResourceList[ReassignmentV3]:
    data = [_reassignment(links, topic, info) for topic in topics for info in topic.partitions if info.is_moving]
    return links.list_of("KafkaReassignment", data, "topics", name, "partitions", "-", "reassignment")


def _reassignment(links: Links, topic: Topic, info: PartitionInfo) -> ReassignmentV3:
    segments = ("topics", topic.name, "partitions", info.partition)
    return ReassignmentV3(
        *links.resource("KafkaReassignment", *segments, "reassignment"),
        topic.name,
        info.partition,
        list(info.adding),
        list(info.removing),
        list(info.target),
        list(info.isr),
        links.moves_throttle,
        links.related(*segments, "replicas"),
    )


# -- moving --------------------------------------------------------------------------------------------------------


async def begin(context: Context, call: Call) -> web.StreamResponse:
    """Begins to reassign replicas, all or none."""
    body = await read_json(context, call, MovesAsked)
    moves = [
        NewReplicas(*_named(context, move.topic_name, move.partition_id), list(move.replicas)) for move in body.data
    ]
    call.subject = "; ".join(
        f"{move.topic_name}-{move.partition_id} to {list(move.replicas)}" for move in body.data[:MOVES_SHOWN]
    )
    await context.face.administration.by(call.caller).alter_reassignments(moves, body.throttle_bytes_per_s)
    return no_content()


async def call_off_all(context: Context, call: Call) -> web.StreamResponse:
    """Cancels all reassignments: replicas stay where they were."""
    topics = context.face.cluster.image.topics.values()
    await _call_off(context, call, [(topic, info) for topic in topics for info in topic.partitions if info.is_moving])
    return no_content()


async def call_off_one(context: Context, call: Call) -> web.StreamResponse:
    """Cancels one partition's reassignment; without effect if there is none."""
    await _call_off(context, call, [partition_of(context, call)])
    return no_content()


async def _call_off(context: Context, call: Call, moving: Sequence[tuple[Topic, PartitionInfo]]) -> None:
    moves = [NewReplicas(topic.topic_id, info.partition, None) for topic, info in moving]
    for start in range(0, len(moves), MOVES_MAX):
        await context.face.administration.by(call.caller).alter_reassignments(moves[start : start + MOVES_MAX])


async def rebalance(context: Context, call: Call) -> web.StreamResponse:
    """Begins to spread all replicas evenly, none on `leaving` brokers; `validate_only` only shows the moves."""
    body = await read_json(context, call, RebalanceAsked)
    call.subject = "validate only" if body.validate_only else f"leaving {list(body.leaving or ())}"
    moves = await context.face.administration.by(call.caller).rebalance(
        body.leaving or (), validate_only=body.validate_only, throttle=body.throttle_bytes_per_s
    )
    names = _names(context)
    planned = [
        MovePlanned(names.get(move.topic_id, move.topic_id), move.partition, list(move.replicas or ()))
        for move in moves
    ]
    return json_answer(Planned(planned))


async def elect(context: Context, call: Call) -> web.StreamResponse:
    """Elects the preferred replicas where they are in sync, or (`unclean`) any live one where none can lead.

    An unclean election is recorded with the accepted losses (`losses`). Giving up `votes` there is the alternative that
    asks the replicas first.
    """
    body = await read_json(context, call, ElectionAsked)
    partitions = None
    if body.data is not None:
        partitions = [PartitionNamed(*_named(context, entry.topic_name, entry.partition_id)) for entry in body.data]
    via, at_ms = context.face.cluster.node_id, context.face.clock.wall_ms()
    command = ElectLeaders(body.election_type, partitions, call.principal.name, via, at_ms)
    elections = await context.face.administration.by(call.caller).elect_leaders(command)
    names = _names(context)
    return json_answer(
        ElectionsShown(
            [
                ElectionShown(
                    names.get(election.topic_id, election.topic_id), election.partition, election.leader, election.code
                )
                for election in elections
            ]
        )
    )


def _names(context: Context) -> dict[str, str]:
    """Returns the names of all topics by topic id."""
    return {topic.topic_id: topic.name for topic in context.face.cluster.image.topics.values()}


def _named(context: Context, name: str, partition: int) -> tuple[str, int]:
    topic = context.face.cluster.topic(check_topic_name(name))
    if partition >= len(topic.partitions):
        raise UnknownPartition(f"topic {name} has no partition {partition}, only {len(topic.partitions)} partitions")
    return topic.topic_id, partition
