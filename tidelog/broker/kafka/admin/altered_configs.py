"""IncrementalAlterConfigs and AlterConfigs for topics: the changes to one topic are applied together or not at all.

AlterConfigs replaces all settings of a topic: settings that it does not name return to their defaults, except those
that can only be set when the topic is created. Settings of a broker are read at its start and cannot be altered; the
level of its logger can (`loggers.py`).

`kafka-reassign-partitions --verify` ends by deleting Kafka's throttle settings of brokers and topics. Here a throttle
ends with its reassignment, so these settings do not exist; deleting them succeeds and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tidelog.broker.kafka.admin.codes import DONE, Outcome, Refused, told_as
from tidelog.broker.kafka.admin.configs import (
    BROKER,
    BROKER_LOGGER,
    NAME_CHARS_SHOWN,
    TOPIC,
    Change,
    given_settings,
    unknown_kind,
)
from tidelog.broker.kafka.admin.desk import Desk, Tree, bound, refuse_repeated, repeated, topic_resource
from tidelog.broker.kafka.admin.loggers import alter_loggers
from tidelog.config.topics import is_fixed
from tidelog.model.access import CLUSTER, Operation
from tidelog.model.cluster import Topic
from tidelog.model.kafka_codes import KafkaCode
from tidelog.model.names import check_topic_name

Changes = Mapping[str, str | None]

TOPIC_THROTTLES: Final = frozenset({"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"})
BROKER_THROTTLES: Final = frozenset(
    {
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)


async def incremental_alter_configs(desk: Desk, request: Any) -> Tree:
    """Changes the settings that the request names, and leaves all others as they are."""
    return await _alter(desk, request, _changes)


async def alter_configs(desk: Desk, request: Any) -> Tree:
    """Replaces all settings of each topic in the request."""
    return await _alter(desk, request, _replacements)


async def _alter(desk: Desk, request: Any, changes_of: Callable[[Topic, Any], Changes]) -> Tree:
    bound(*(len(resource.configs) for resource in request.resources))
    is_repeated = repeated((resource.resource_type, resource.resource_name) for resource in request.resources)

    async def alter(resource: Any) -> Tree:
        kind, name = resource.resource_type, resource.resource_name
        refuse_repeated(is_repeated=is_repeated((kind, name)), what="this resource")
        if kind == BROKER:
            desk.require(Operation.ALTER_CONFIGS, CLUSTER)
            if name == str(desk.cluster.node_id) and _only_ends_throttles(resource):
                return _answer(resource, DONE)
            raise Refused(KafkaCode.INVALID_REQUEST, "a broker is told its settings when it starts: change them there")
        if kind == BROKER_LOGGER:
            await alter_loggers(desk, resource, is_trial=request.validate_only)
        elif kind == TOPIC:
            await _alter_topic(desk, resource, changes_of, is_trial=request.validate_only)
        else:
            raise unknown_kind(kind)
        return _answer(resource, DONE)

    return {"responses": await desk.each(request.resources, alter, _answer)}


def _only_ends_throttles(resource: Any) -> bool:
    return bool(resource.configs) and all(
        # Settings of AlterConfigs have no operation: they are set.
        config.name in BROKER_THROTTLES and getattr(config, "config_operation", Change.SET) == Change.DELETE
        for config in resource.configs
    )


async def _alter_topic(
    desk: Desk, resource: Any, changes_of: Callable[[Topic, Any], Changes], *, is_trial: bool
) -> None:
    name = resource.resource_name
    with told_as(KafkaCode.INVALID_TOPIC_EXCEPTION):
        check_topic_name(name)
    desk.require(Operation.ALTER_CONFIGS, topic_resource(name))
    names = " ".join(sorted(dict.fromkeys(config.name for config in resource.configs)))
    subject = f"{name}: {names}" + (" (validate only)" if is_trial else "")
    with told_as(KafkaCode.INVALID_CONFIG):
        async with desk.changing(Operation.ALTER_CONFIGS, topic_resource(name), subject):
            changes = changes_of(desk.cluster.topic(name), resource)
            await desk.administration.alter_topic_configs(name, changes, validate_only=is_trial)


def _changes(_topic: Topic, resource: Any) -> Changes:
    """Returns the changes of a topic's settings, by name: the new value, or None to delete the setting. Raises
    `Refused` for a bad change, and for APPEND or SUBTRACT, since no setting of a topic is a list."""
    changes: dict[str, str | None] = {}
    for config in resource.configs:
        shown = repr(config.name[:NAME_CHARS_SHOWN])
        if config.name in changes:
            raise Refused(KafkaCode.INVALID_REQUEST, f"the setting {shown} is changed twice")
        match config.config_operation:
            case Change.SET:
                changes.update(given_settings([(config.name, config.value)]))
            case Change.DELETE if config.name in TOPIC_THROTTLES:
                pass
            case Change.DELETE:
                changes[config.name] = None
            case Change.APPEND | Change.SUBTRACT:
                raise Refused(KafkaCode.INVALID_CONFIG, f"the setting {shown} is no list: set it as a whole")
            case unknown:
                raise Refused(KafkaCode.INVALID_REQUEST, f"{unknown} is nothing that can be done to a setting")
    return changes


def _replacements(topic: Topic, resource: Any) -> Changes:
    new_settings = given_settings((config.name, config.value) for config in resource.configs)
    changes: dict[str, str | None] = {
        name: None for name in topic.configs if name not in new_settings and not is_fixed(name)
    }
    changes.update((name, value) for name, value in new_settings.items() if topic.configs.get(name) != value)
    return changes


def _answer(resource: Any, outcome: Outcome) -> Tree:
    return {"resource_type": resource.resource_type, "resource_name": resource.resource_name, **outcome.fields}
