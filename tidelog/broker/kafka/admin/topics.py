"""CreateTopics, DeleteTopics and CreatePartitions.

New topics are checked here first, because Kafka has an error code for each kind of mistake. The controller checks them
again with its own settings, and its answer is final.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from tidelog.broker.kafka.admin.codes import DONE, AdminCode, Outcome, Refused, told_as
from tidelog.broker.kafka.admin.configs import given_settings, setting_tree
from tidelog.broker.kafka.admin.desk import Desk, Tree, bound, refuse_repeated, repeated, topic_resource
from tidelog.config.describe import describe_topic
from tidelog.config.schema import BrokerConfig
from tidelog.config.topics import new_topic_overrides
from tidelog.controller.commands import AddPartitions, NewTopic
from tidelog.controller.decide_topics import add_partitions
from tidelog.model.access import CLUSTER, Operation
from tidelog.model.cluster import Topic
from tidelog.model.ids import NodeId
from tidelog.model.kafka_codes import KafkaCode
from tidelog.model.names import check_topic_name

DEFAULT: Final = -1
"""The count of partitions or replicas that stands for the broker's default (KIP-464)."""

# -- CreateTopics ----------------------------------------------------------------------------------------------------


async def create_topics(desk: Desk, request: Any) -> Tree:
    """Creates topics; with `validate_only` returns what would be created."""
    bound(*(len(topic.configs) for topic in request.topics))
    is_repeated = repeated(topic.name for topic in request.topics)

    async def create(creation: Any) -> Tree:
        refuse_repeated(is_repeated=is_repeated(creation.name), what="this topic")
        if not desk.may(Operation.CREATE, CLUSTER):
            desk.require(Operation.CREATE, topic_resource(creation.name))
        return await _create(desk, creation, is_trial=request.validate_only)

    return {"topics": await desk.each(request.topics, create, _not_created)}


async def _create(desk: Desk, creation: Any, *, is_trial: bool) -> Tree:
    invalid = AdminCode.INVALID_REPLICA_ASSIGNMENT if creation.assignments else KafkaCode.INVALID_REQUEST
    with told_as(invalid):
        async with desk.changing(Operation.CREATE, topic_resource(creation.name), creation.name):
            new_topic = _new_topic(creation)
            _check(new_topic, desk.cluster.config, len(desk.image.brokers))
            if not is_trial:
                await desk.mutate(_partitions(new_topic, desk.cluster.config))
            topic = await desk.administration.create_topic(new_topic, validate_only=is_trial)
    return _created(desk, topic, is_trial=is_trial)


def _new_topic(creation: Any) -> NewTopic:
    with told_as(KafkaCode.INVALID_TOPIC_EXCEPTION):
        name = check_topic_name(creation.name)
    configs = given_settings((config.name, config.value) for config in creation.configs)
    partitions, replicas = creation.num_partitions, creation.replication_factor
    if not creation.assignments:
        counts = [None if count == DEFAULT else count for count in (partitions, replicas)]
        return NewTopic(name, counts[0], counts[1], None, configs)
    if (partitions, replicas) != (DEFAULT, DEFAULT):
        raise Refused(KafkaCode.INVALID_REQUEST, "assignments say how many there are of each: leave the counts at -1")
    assignments = {
        assignment.partition_index: [NodeId(node) for node in assignment.broker_ids]
        for assignment in creation.assignments
    }
    if len(assignments) != len(creation.assignments):
        raise Refused(AdminCode.INVALID_REPLICA_ASSIGNMENT, "a partition is assigned twice")
    return NewTopic(name, None, None, assignments, configs)


def _check(new_topic: NewTopic, config: BrokerConfig, brokers: int) -> None:
    """Raises `Refused` with INVALID_CONFIG, INVALID_PARTITIONS or INVALID_REPLICATION_FACTOR for an invalid new
    topic."""
    with told_as(KafkaCode.INVALID_CONFIG):
        new_topic_overrides(config, new_topic.configs)
    most, replicas = min(config.topic_partitions_max, config.request_partitions_max), new_topic.replication_factor
    if new_topic.partitions is not None and not 1 <= new_topic.partitions <= most:
        raise Refused(
            AdminCode.INVALID_PARTITIONS, f"a new topic has 1 to {most} partitions, not {new_topic.partitions}"
        )
    if replicas is not None and not 1 <= replicas <= brokers:
        raise Refused(
            AdminCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replicas} needs as many brokers, and at least one; the cluster has {brokers}",
        )


def _partitions(new_topic: NewTopic, config: BrokerConfig) -> int:
    if new_topic.assignments is not None:
        return len(new_topic.assignments)
    return config.num_partitions if new_topic.partitions is None else new_topic.partitions


def _created(desk: Desk, topic: Topic, *, is_trial: bool) -> Tree:
    """Returns the description of a created topic, or of one that would be; settings are left out if the client may not
    see them."""
    may_see = desk.may(Operation.DESCRIBE_CONFIGS, topic_resource(topic.name))
    replicas = len(topic.partitions[0].replicas)
    entries = describe_topic(desk.cluster.config, topic.configs, replication_factor=replicas) if may_see else ()
    return {
        "name": topic.name,
        "topic_id": None if is_trial else topic.topic_id,
        **DONE.fields,
        "topic_config_error_code": 0 if may_see else int(KafkaCode.TOPIC_AUTHORIZATION_FAILED),
        "num_partitions": len(topic.partitions) if may_see else DEFAULT,
        "replication_factor": replicas if may_see else DEFAULT,
        "configs": [setting_tree(entry) for entry in entries],
    }


def _not_created(creation: Any, outcome: Outcome) -> Tree:
    return {"name": creation.name, "topic_id": None, **outcome.fields, "configs": []}


# -- DeleteTopics ----------------------------------------------------------------------------------------------------


class _Named(NamedTuple):
    name: str | None
    topic_id: str | None = None
    """The topic id, as 32 hexadecimal digits."""


async def delete_topics(desk: Desk, request: Any) -> Tree:
    """Deletes topics, given by name or id, with all their records."""
    named: Iterable[Any] | None = getattr(request, "topics", None)
    topics = (
        [_Named(name) for name in request.topic_names]
        if named is None
        else [_Named(topic.name, topic.topic_id) for topic in named]
    )
    is_repeated = repeated(topics)

    async def delete(named_topic: _Named) -> Tree:
        refuse_repeated(is_repeated=is_repeated(named_topic), what="this topic")
        name, topic_id = _resolve(desk, named_topic)
        desk.require(Operation.DELETE, topic_resource(name))
        async with desk.changing(Operation.DELETE, topic_resource(name), name):
            await _delete(desk, name, topic_id)
        return {"name": name, "topic_id": named_topic.topic_id, **DONE.fields}

    return {"responses": await desk.each(topics, delete, _not_deleted)}


def _resolve(desk: Desk, named: _Named) -> tuple[str, str | None]:
    """Returns the name of the topic, and the id if the client gave one. Raises `Refused` for an unknown id."""
    if (named.name is None) == (named.topic_id is None):
        raise Refused(KafkaCode.INVALID_REQUEST, "name a topic by its name or its id, not both")
    if named.topic_id is None:
        assert named.name is not None
        return named.name, None
    topic = desk.parts.ids.find(desk.image, named.topic_id)
    if topic is None or not desk.may(Operation.DESCRIBE, topic_resource(topic.name)):
        raise Refused(KafkaCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
    return topic.name, topic.topic_id


async def _delete(desk: Desk, name: str, topic_id: str | None) -> None:
    if not desk.cluster.config.delete_topic_enable:
        raise Refused(AdminCode.TOPIC_DELETION_DISABLED, "topics cannot be deleted here: delete.topic.enable is false")
    await desk.mutate(len(desk.cluster.topic(name).partitions))
    if topic_id is not None and desk.cluster.topic(name).topic_id != topic_id:
        raise Refused(KafkaCode.UNKNOWN_TOPIC_ID, "the topic was deleted, and another one has its name")
    await desk.administration.delete_topic(name)


def _not_deleted(named: _Named, outcome: Outcome) -> Tree:
    return {"name": named.name, "topic_id": named.topic_id, **outcome.fields}


# -- CreatePartitions ------------------------------------------------------------------------------------------------


async def create_partitions(desk: Desk, request: Any) -> Tree:
    """Adds partitions to topics; with `validate_only` only checks whether that is possible."""
    is_repeated = repeated(topic.name for topic in request.topics)

    async def grow(growth: Any) -> Tree:
        refuse_repeated(is_repeated=is_repeated(growth.name), what="this topic")
        desk.require(Operation.ALTER, topic_resource(growth.name))
        is_placed = growth.assignments is not None
        with told_as(AdminCode.INVALID_REPLICA_ASSIGNMENT if is_placed else AdminCode.INVALID_PARTITIONS):
            async with desk.changing(Operation.ALTER, topic_resource(growth.name), f"{growth.count} partitions"):
                await _grow(desk, growth, is_trial=request.validate_only)
        return {"name": growth.name, **DONE.fields}

    return {"results": await desk.each(request.topics, grow, _not_grown)}


async def _grow(desk: Desk, growth: Any, *, is_trial: bool) -> None:
    have, most = len(desk.cluster.topic(growth.name).partitions), desk.cluster.config.topic_partitions_max
    if not have < growth.count <= most:
        raise Refused(
            AdminCode.INVALID_PARTITIONS,
            f"the topic has {have} partitions, and can only get more, up to {most}; not {growth.count}",
        )
    assignments = None
    if growth.assignments is not None:
        assignments = {number: list(given.broker_ids) for number, given in enumerate(growth.assignments, have)}
    if is_trial:
        add_partitions(desk.image, AddPartitions(growth.name, have, growth.count, assignments), desk.cluster.config)
        return
    await desk.mutate(growth.count - have)
    await desk.administration.add_partitions(growth.name, growth.count, assignments)


def _not_grown(growth: Any, outcome: Outcome) -> Tree:
    return {"name": growth.name, **outcome.fields}
