"""REST v3: topics are created, listed, described, extended by partitions, and deleted.

A topic shows where its replicas are (`assignments`), also with `validate_only`, so that an administrator sees the
placement before the topic is created.
"""

from __future__ import annotations

from typing import Annotated

from aiohttp import web
from msgspec import Meta, Struct

from tidelog.broker.http import params
from tidelog.broker.http.answers import json_answer, no_content
from tidelog.broker.http.body import read_json
from tidelog.broker.http.call import Call
from tidelog.broker.http.context import Context
from tidelog.broker.http.envelope import Links, Related, Resource
from tidelog.broker.http.json_body import Body, NodeNumber, PartitionNumber
from tidelog.controller.commands import NewTopic
from tidelog.model.access import CLUSTER, Operation
from tidelog.model.cluster import Topic
from tidelog.model.errors import InvalidRequest
from tidelog.model.ids import NodeId
from tidelog.model.names import check_topic_name

PartitionCount = Annotated[int, Meta(ge=1, le=10_000)]
ReplicaCount = Annotated[int, Meta(ge=1, le=9)]


class ConfigGiven(Body):
    """A setting of a new topic."""

    name: str
    value: str | None = None


class CreateTopic(Body):
    """The body of a request to create a topic."""

    topic_name: str
    partitions_count: PartitionCount | None = None
    replication_factor: ReplicaCount | None = None
    replicas_assignments: dict[PartitionNumber, list[NodeNumber]] | None = None
    configs: list[ConfigGiven] | None = None
    validate_only: bool = False


class GrowTopic(Body):
    """The body of a request for more partitions: the new total number."""

    partitions_count: PartitionCount


class PartitionAssignment(Struct, frozen=True):
    """The brokers that hold a partition's replicas, the preferred leader first."""

    partition_id: int
    replicas: list[int]


class TopicV3(Resource, frozen=True):
    """A topic."""

    topic_name: str
    topic_id: str
    is_internal: bool
    replication_factor: int
    partitions_count: int
    protocol: str
    assignments: list[PartitionAssignment]
    partitions: Related
    configs: Related
    partition_reassignments: Related


async def create_topic(context: Context, call: Call) -> web.StreamResponse:
    """Creates a topic, or (`validate_only`) shows how it would be created."""
    links = Links(context, call)
    body = await read_json(context, call, CreateTopic)
    call.subject = body.topic_name
    if not context.may(call, Operation.CREATE, *CLUSTER):
        context.require(call, Operation.CREATE, "Topic", [body.topic_name])
    new_topic = _new_topic(body)
    if call.share is not None and not body.validate_only:
        await call.share.mutate(_partitions_of(new_topic, context.face.cluster.config.num_partitions))
    topic = await context.face.administration.by(call.caller).create_topic(new_topic, validate_only=body.validate_only)
    shown = _topic(links, topic)
    if body.validate_only:
        return json_answer(shown)
    return json_answer(shown, status=201, headers={"Location": shown.metadata.self})


async def list_topics(context: Context, call: Call) -> web.StreamResponse:
    """Lists the topics that the caller may see."""
    links = Links(context, call)
    topics = context.face.cluster.image.topics
    names = context.visible(call, "Topic", sorted(topics))
    return json_answer(links.list_of("KafkaTopic", [_topic(links, topics[name]) for name in names], "topics"))


async def get_topic(context: Context, call: Call) -> web.StreamResponse:
    """Returns a topic."""
    links = Links(context, call)
    return json_answer(_topic(links, context.face.cluster.topic(call.topic_name())))


async def grow_topic(context: Context, call: Call) -> web.StreamResponse:
    """Increases the number of partitions of a topic."""
    links = Links(context, call)
    name = call.topic_name()
    body = await read_json(context, call, GrowTopic)
    if call.share is not None:
        await call.share.mutate(max(1, body.partitions_count - len(context.face.cluster.topic(name).partitions)))
    return json_answer(
        _topic(links, await context.face.administration.by(call.caller).add_partitions(name, body.partitions_count))
    )


async def delete_topic(context: Context, call: Call) -> web.StreamResponse:
    """Deletes a topic with all its records."""
    name = call.topic_name()
    if call.share is not None:
        await call.share.mutate(len(context.face.cluster.topic(name).partitions))
    await context.face.administration.by(call.caller).delete_topic(name)
    return no_content()


def _partitions_of(new_topic: NewTopic, default: int) -> int:
    """Returns the number of partitions that a new topic will have."""
    if new_topic.assignments is not None:
        return max(1, len(new_topic.assignments))
    return default if new_topic.partitions is None else max(1, new_topic.partitions)


def _new_topic(body: CreateTopic) -> NewTopic:
    name = check_topic_name(body.topic_name)
    configs: dict[str, str] = {}
    for config in body.configs or ():
        if config.name in configs:
            raise InvalidRequest(f"the setting {params.shown(config.name)} is given twice; keep one")
        if config.value is not None:  # null is the default, which needs no saying
            configs[config.name] = config.value
    assignments = None
    replicas_of = body.replicas_assignments
    if replicas_of is not None:
        if body.partitions_count is not None or body.replication_factor is not None:
            raise InvalidRequest("replicas_assignments says how many there are of each: leave the counts out")
        assignments = {partition: [NodeId(node_id) for node_id in nodes] for partition, nodes in replicas_of.items()}
    return NewTopic(name, body.partitions_count, body.replication_factor, assignments, configs)


def _topic(links: Links, topic: Topic) -> TopicV3:
    return TopicV3(
        *links.resource("KafkaTopic", "topics", topic.name),
        topic.name,
        topic.topic_id,
        topic.is_internal,
        len(topic.partitions[0].replicas),
        len(topic.partitions),
        topic.commit_protocol,
        [PartitionAssignment(partition.partition, list(partition.replicas)) for partition in topic.partitions],
        links.related("topics", topic.name, "partitions"),
        links.related("topics", topic.name, "configs"),
        links.related("topics", topic.name, "partitions", "-", "reassignment"),
    )
