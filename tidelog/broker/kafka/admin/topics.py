"""CreateTopics, DeleteTopics and CreatePartitions.

What is wrong with a new topic is looked for here first, since Kafka has a code for each way; the controller judges it
again, by its own settings, and has the last word.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from tidelog.broker.kafka.admin.codes import DONE, AdminCode, Outcome, Refused, told_as
from tidelog.broker.kafka.admin.configs import SOURCES, given_settings
from tidelog.broker.kafka.admin.desk import Desk, Tree, bound, refuse_repeated, repeated, topic_resource
from tidelog.config.describe import describe_topic
from tidelog.config.schema import BrokerConfig
from tidelog.config.topics import new_topic_overrides
from tidelog.controller.commands import NewTopic
from tidelog.model.access import CLUSTER, Operation
from tidelog.model.cluster import Topic
from tidelog.model.ids import NodeId
from tidelog.model.kafka_codes import KafkaCode
from tidelog.model.names import check_topic_name

DEFAULT: Final = -1
"""In the place of a count: as the broker's settings have it (KIP-464)."""

# -- CreateTopics ----------------------------------------------------------------------------------------------------


async def create_topics(desk: Desk, request: Any) -> Tree:
    """Creates topics, or (`validate_only`) says how they would be."""
    bound(*(len(topic.configs) for topic in request.topics))
    is_repeated = repeated(topic.name for topic in request.topics)

    async def create(asked: Any) -> Tree:
        refuse_repeated(is_repeated=is_repeated(asked.name), what="this topic")
        if not desk.may(Operation.CREATE, CLUSTER):
            desk.require(Operation.CREATE, topic_resource(asked.name))
        return await _create(desk, asked, is_trial=request.validate_only)

    return {"topics": await desk.each(request.topics, create, _not_created)}


async def _create(desk: Desk, asked: Any, *, is_trial: bool) -> Tree:
    invalid = AdminCode.INVALID_REPLICA_ASSIGNMENT if asked.assignments else KafkaCode.INVALID_REQUEST
    with told_as(invalid):
        async with desk.changing(Operation.CREATE, topic_resource(asked.name), asked.name):
            wanted = _new_topic(asked)
            _check(wanted, desk.cluster.config, len(desk.image.brokers))
            if not is_trial:
                await desk.mutate(_partitions(wanted, desk.cluster.config))
            topic = await desk.administration.create_topic(wanted, validate_only=is_trial)
    return _created(desk, topic, is_trial=is_trial)


def _new_topic(asked: Any) -> NewTopic:
    with told_as(KafkaCode.INVALID_TOPIC_EXCEPTION):
        name = check_topic_name(asked.name)
    configs = given_settings((config.name, config.value) for config in asked.configs)
    partitions, replicas = asked.num_partitions, asked.replication_factor
    if not asked.assignments:
        wanted = [None if count == DEFAULT else count for count in (partitions, replicas)]
        return NewTopic(name, wanted[0], wanted[1], None, configs)
    if (partitions, replicas) != (DEFAULT, DEFAULT):
        raise Refused(KafkaCode.INVALID_REQUEST, "assignments say how many there are of each: leave the counts at -1")
    assignments = {each.partition_index: [NodeId(node) for node in each.broker_ids] for each in asked.assignments}
    if len(assignments) != len(asked.assignments):
        raise Refused(AdminCode.INVALID_REPLICA_ASSIGNMENT, "a partition is assigned twice")
    return NewTopic(name, None, None, assignments, configs)


def _check(wanted: NewTopic, config: BrokerConfig, brokers: int) -> None:
    """Raises `Refused` with the code that Kafka has for what is wrong."""
    with told_as(KafkaCode.INVALID_CONFIG):
        new_topic_overrides(config, wanted.configs)
    most, replicas = min(config.topic_partitions_max, config.request_partitions_max), wanted.replication_factor
    if wanted.partitions is not None and not 1 <= wanted.partitions <= most:
        raise Refused(AdminCode.INVALID_PARTITIONS, f"a new topic has 1 to {most} partitions, not {wanted.partitions}")
    if replicas is not None and not 1 <= replicas <= brokers:
        raise Refused(
            AdminCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replicas} needs as many brokers, and at least one; the cluster has {brokers}",
        )


def _partitions(wanted: NewTopic, config: BrokerConfig) -> int:
    if wanted.assignments is not None:
        return len(wanted.assignments)
    return config.num_partitions if wanted.partitions is None else wanted.partitions


def _created(desk: Desk, topic: Topic, *, is_trial: bool) -> Tree:
    """Returns a topic as it is, or would be; its settings are for those who may see them."""
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
        "configs": [
            {
                "name": entry.name,
                "value": entry.value,
                "read_only": entry.is_read_only,
                "config_source": SOURCES[entry.source],
                "is_sensitive": entry.is_sensitive,
            }
            for entry in entries
        ],
    }


def _not_created(asked: Any, outcome: Outcome) -> Tree:
    return {"name": asked.name, "topic_id": None, **outcome.fields, "configs": []}


# -- DeleteTopics ----------------------------------------------------------------------------------------------------


class _Named(NamedTuple):
    name: str | None
    topic_id: str | None = None
    """The 32 hexadecimal digits of an id."""


async def delete_topics(desk: Desk, request: Any) -> Tree:
    """Deletes topics, by their names or ids, with all their records."""
    named: Iterable[Any] | None = getattr(request, "topics", None)
    asked = (
        [_Named(name) for name in request.topic_names]
        if named is None
        else [_Named(each.name, each.topic_id) for each in named]
    )
    is_repeated = repeated(asked)

    async def delete(one: _Named) -> Tree:
        refuse_repeated(is_repeated=is_repeated(one), what="this topic")
        name, topic_id = _found(desk, one)
        desk.require(Operation.DELETE, topic_resource(name))
        async with desk.changing(Operation.DELETE, topic_resource(name), name):
            await _delete(desk, name, topic_id)
        return {"name": name, "topic_id": one.topic_id, **DONE.fields}

    return {"responses": await desk.each(asked, delete, _not_deleted)}


def _found(desk: Desk, one: _Named) -> tuple[str, str | None]:
    """Returns the name of a topic, and the id that it must have, if it was given."""
    if (one.name is None) == (one.topic_id is None):
        raise Refused(KafkaCode.INVALID_REQUEST, "name a topic by its name or its id, not both")
    if one.topic_id is None:
        assert one.name is not None
        return one.name, None
    topic = desk.parts.ids.find(desk.image, one.topic_id)
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


def _not_deleted(one: _Named, outcome: Outcome) -> Tree:
    return {"name": one.name, "topic_id": one.topic_id, **outcome.fields}


# -- CreatePartitions ------------------------------------------------------------------------------------------------


async def create_partitions(desk: Desk, request: Any) -> Tree:
    """Gives topics more partitions, or (`validate_only`) says whether they could have them."""
    is_repeated = repeated(topic.name for topic in request.topics)

    async def grow(asked: Any) -> Tree:
        refuse_repeated(is_repeated=is_repeated(asked.name), what="this topic")
        desk.require(Operation.ALTER, topic_resource(asked.name))
        with told_as(AdminCode.INVALID_PARTITIONS):
            async with desk.changing(Operation.ALTER, topic_resource(asked.name), f"{asked.count} partitions"):
                await _grow(desk, asked, is_trial=request.validate_only)
        return {"name": asked.name, **DONE.fields}

    return {"results": await desk.each(request.topics, grow, _not_grown)}


async def _grow(desk: Desk, asked: Any, *, is_trial: bool) -> None:
    have, most = len(desk.cluster.topic(asked.name).partitions), desk.cluster.config.topic_partitions_max
    if asked.assignments is not None:
        raise Refused(
            AdminCode.INVALID_REPLICA_ASSIGNMENT,
            "new partitions are placed by the cluster: leave the assignments out, and reassign replicas afterwards",
        )
    if not have < asked.count <= most:
        raise Refused(
            AdminCode.INVALID_PARTITIONS,
            f"the topic has {have} partitions, and can only get more, up to {most}; not {asked.count}",
        )
    if is_trial:
        return
    await desk.mutate(asked.count - have)
    await desk.administration.add_partitions(asked.name, asked.count)


def _not_grown(asked: Any, outcome: Outcome) -> Tree:
    return {"name": asked.name, **outcome.fields}
