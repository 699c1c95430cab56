"""DescribeConfigs: the settings in force, the source of each, and the values that its other sources would give.

A broker shows only its own settings: clients send the request to each broker. `log.level` is left out, since it is the
level of the broker's logger (`loggers.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from tidelog.broker.kafka.admin.codes import DONE, Outcome, told_as
from tidelog.broker.kafka.admin.configs import BROKER, BROKER_LOGGER, SOURCES, TOPIC, setting_tree, unknown_kind
from tidelog.broker.kafka.admin.desk import Desk, Tree, bound, require_own, topic_resource
from tidelog.broker.kafka.admin.loggers import described_loggers
from tidelog.config.describe import LOG_LEVEL, ConfigEntry, describe_broker, describe_topic
from tidelog.config.names import field_name
from tidelog.config.schema import BrokerConfig, TopicConfig
from tidelog.config.settings.base import Settings
from tidelog.model.access import CLUSTER, Operation
from tidelog.model.kafka_codes import KafkaCode
from tidelog.model.names import check_topic_name

RESOURCES_MAX: Final = 2_000
"""Maximum number of resources in one request: `kafka-topics --describe` names all topics at once."""
BOOLEAN, STRING, INT, LIST = 1, 2, 3, 7
LONG: Final = 5
KINDS: Final = ((bool, BOOLEAN), (int, LONG), (tuple, LIST))


async def describe_configs(desk: Desk, request: Any) -> Tree:
    """Describes the settings of topics and of this broker."""

    bound(*(len(resource.configuration_keys or ()) for resource in request.resources))

    async def describe(resource: Any) -> Tree:
        await asyncio.sleep(0)  # so many take longer than others should wait
        if resource.resource_type == BROKER_LOGGER:
            return {**_named(resource, DONE), "configs": described_loggers(desk, resource)}
        model, entries = _entries(desk, resource.resource_type, resource.resource_name)
        # As in Kafka's ConfigHelper an empty list of keys stands for all of them, as none does.
        names = dict.fromkeys(resource.configuration_keys or (entry.name for entry in entries))
        return {
            **_named(resource, DONE),
            "configs": [_setting(model, entry, request) for entry in entries if entry.name in names],
        }

    def failed(resource: Any, outcome: Outcome) -> Tree:
        return {**_named(resource, outcome), "configs": []}

    return {"results": await desk.each(request.resources, describe, failed, most=RESOURCES_MAX)}


def _named(resource: Any, outcome: Outcome) -> Tree:
    return {"resource_type": resource.resource_type, "resource_name": resource.resource_name, **outcome.fields}


def _entries(desk: Desk, kind: int, name: str) -> tuple[type[Settings], Sequence[ConfigEntry]]:
    if kind == TOPIC:
        with told_as(KafkaCode.INVALID_TOPIC_EXCEPTION):
            check_topic_name(name)
        desk.require(Operation.DESCRIBE_CONFIGS, topic_resource(name))
        topic = desk.cluster.topic(name)
        replicas = len(topic.partitions[0].replicas)
        return TopicConfig, describe_topic(desk.cluster.config, topic.configs, replication_factor=replicas)
    if kind != BROKER:
        raise unknown_kind(kind)
    desk.require(Operation.DESCRIBE_CONFIGS, CLUSTER)
    if not name:  # what is set for all brokers together: nothing
        return BrokerConfig, ()
    require_own(desk, name)
    config = desk.cluster.config
    return BrokerConfig, [entry for entry in describe_broker(config, config.log_level) if entry.name != LOG_LEVEL]


def _setting(model: type[Settings], entry: ConfigEntry, request: Any) -> Tree:
    field = model.model_fields[field_name(entry.name)]
    synonyms = entry.synonyms if request.include_synonyms else ()
    return {
        **setting_tree(entry),
        "synonyms": [
            {"name": synonym.name, "value": synonym.value, "source": SOURCES[synonym.source]} for synonym in synonyms
        ],
        "config_type": kind_of(model, entry.name),
        "documentation": field.description if getattr(request, "include_documentation", False) else None,
    }


def kind_of(model: type[Settings], name: str) -> int:
    """Returns Kafka's number for the type of a setting: BOOLEAN, STRING, INT, LONG or LIST."""
    field = model.model_fields[field_name(name)]
    for kind, number in KINDS:
        if isinstance(field.default, kind):
            return number
    return INT if "int" in str(field.annotation) else STRING
