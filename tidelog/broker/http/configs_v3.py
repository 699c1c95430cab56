"""REST v3: settings of topics, which can be changed, and of brokers, of which only the log level can be changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, get_args

from aiohttp import web
from msgspec import Struct

from tidelog.broker.http import params
from tidelog.broker.http.answers import json_answer, no_content
from tidelog.broker.http.body import read_json
from tidelog.broker.http.call import Call
from tidelog.broker.http.clusters_v3 import broker_of
from tidelog.broker.http.context import Context
from tidelog.broker.http.envelope import Links, Metadata, Resource
from tidelog.broker.http.json_body import Body
from tidelog.config.describe import LOG_LEVEL, ConfigEntry, describe_broker, describe_topic
from tidelog.config.values import LogLevel
from tidelog.model.access import Operation
from tidelog.model.cluster import Topic
from tidelog.model.errors import InvalidRequest, NotFound


class SynonymV3(Struct, frozen=True):
    """A value that a setting could have (from a topic override, the configuration or the default), with its source."""

    name: str
    value: str | None
    source: str


class ConfigV3(Resource, frozen=True):
    """A setting, with the value in force and the values that it could have."""

    name: str
    value: str | None
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    source: str
    synonyms: list[SynonymV3]


class TopicConfigV3(ConfigV3, frozen=True):
    """A setting of a topic."""

    topic_name: str


class BrokerConfigV3(ConfigV3, frozen=True):
    """A setting of a broker."""

    broker_id: int


class ClusterConfigV3(ConfigV3, frozen=True):
    """A setting shared by all brokers of a cluster."""

    config_type: str


class ConfigValue(Body):
    """The body of a PUT: the new value, or null for the default."""

    value: str | None


class ConfigChange(Body):
    """The change of one setting: to a value, or back to its default (`DELETE` or null)."""

    name: str
    value: str | None = None
    operation: Literal["SET", "DELETE"] | None = None


class ConfigChanges(Body):
    """The body of `configs:alter`: all changes are made, or none."""

    data: list[ConfigChange]
    validate_only: bool = False


LOG_LEVELS: Final = get_args(LogLevel)


async def list_topic_configs(context: Context, call: Call) -> web.StreamResponse:
    """Lists the settings of a topic."""
    links = Links(context, call)
    topic = context.face.cluster.topic(call.topic_name())
    data = _topic_configs(context, links, topic)
    return json_answer(links.list_of("KafkaTopicConfig", data, "topics", topic.name, "configs"))


async def list_all_topic_configs(context: Context, call: Call) -> web.StreamResponse:
    """Lists the settings of all topics."""
    links = Links(context, call)
    topics = context.face.cluster.image.topics
    names = context.visible(call, "Topic", sorted(topics), Operation.DESCRIBE_CONFIGS)
    data = [config for name in names for config in _topic_configs(context, links, topics[name])]
    return json_answer(links.list_of("KafkaTopicConfig", data, "topics", "-", "configs"))


async def get_topic_config(context: Context, call: Call) -> web.StreamResponse:
    """Returns a setting of a topic."""
    links = Links(context, call)
    topic = context.face.cluster.topic(call.topic_name())
    return json_answer(_named(_topic_configs(context, links, topic), call))


async def put_topic_config(context: Context, call: Call) -> web.StreamResponse:
    """Sets one setting of a topic."""
    body = await read_json(context, call, ConfigValue)
    return await _alter(context, call, {call.path["name"]: body.value})


async def delete_topic_config(context: Context, call: Call) -> web.StreamResponse:
    """Sets one setting of a topic back to its default."""
    return await _alter(context, call, {call.path["name"]: None})


async def alter_topic_configs(context: Context, call: Call) -> web.StreamResponse:
    """Changes several settings of a topic, all or none."""
    body = await read_json(context, call, ConfigChanges)
    changes: dict[str, str | None] = {}
    for change in body.data:
        if change.name in changes:
            raise InvalidRequest(f"the setting {params.shown(change.name)} is changed twice; keep one")
        if change.operation == "DELETE" and change.value is not None:
            raise InvalidRequest(f"the setting {params.shown(change.name)} is to be deleted and has a value")
        changes[change.name] = change.value
    return await _alter(context, call, changes, validate_only=body.validate_only)


async def list_broker_configs(context: Context, call: Call) -> web.StreamResponse:
    """Lists the settings of a broker."""
    links = Links(context, call)
    data = _broker_configs(context, links, call)
    return json_answer(links.list_of("KafkaBrokerConfig", data, "brokers", broker_of(context, call).node_id, "configs"))


async def get_broker_config(context: Context, call: Call) -> web.StreamResponse:
    """Returns a setting of a broker."""
    links = Links(context, call)
    return json_answer(_named(_broker_configs(context, links, call), call))


async def put_broker_config(context: Context, call: Call) -> web.StreamResponse:
    """Sets the log level of a running broker until it restarts; no other setting can be changed."""
    body = await read_json(context, call, ConfigValue)
    return _alter_own(context, call, body.value)


async def delete_broker_config(context: Context, call: Call) -> web.StreamResponse:
    """Resets the log level of a running broker to the value in its configuration."""
    return _alter_own(context, call, None)


async def list_all_broker_configs(context: Context, call: Call) -> web.StreamResponse:
    """Lists the settings of the addressed broker, the only one that it can tell."""
    links = Links(context, call)
    data = _own_configs(context, links)
    return json_answer(links.list_of("KafkaBrokerConfig", data, "brokers", "-", "configs"))


async def list_cluster_configs(context: Context, call: Call) -> web.StreamResponse:
    """Lists the settings shared by all brokers: always empty, each broker has its own configuration."""
    data: list[ClusterConfigV3] = []
    return json_answer(Links(context, call).list_of("KafkaClusterConfig", data, "broker-configs"))


async def _alter(
    context: Context, call: Call, changes: dict[str, str | None], *, validate_only: bool = False
) -> web.StreamResponse:
    name = call.topic_name()
    call.subject = f"{name}: " + " ".join(sorted(changes)) + (" (validate only)" if validate_only else "")
    await context.face.administration.by(call.caller).alter_topic_configs(name, changes, validate_only=validate_only)
    return no_content()


def _alter_own(context: Context, call: Call, value: str | None) -> web.StreamResponse:
    _require_own(context, call)
    entry = _named(_own_configs(context, Links(context, call)), call)
    if entry.is_read_only:
        raise InvalidRequest(
            f"{entry.name} cannot be changed while a broker runs, only {LOG_LEVEL}; change the broker's settings and "
            "restart it"
        )
    level = context.face.cluster.config.log_level if value is None else value
    if level not in LOG_LEVELS:
        raise InvalidRequest(f"{LOG_LEVEL} is one of {', '.join(LOG_LEVELS)}, not {params.shown(level)}")
    context.log_level.set(level)
    return no_content()


def _topic_configs(context: Context, links: Links, topic: Topic) -> list[TopicConfigV3]:
    entries = describe_topic(
        context.face.cluster.config, topic.configs, replication_factor=len(topic.partitions[0].replicas)
    )
    return [
        TopicConfigV3(
            *_described(entry, links.resource("KafkaTopicConfig", "topics", topic.name, "configs", entry.name)),
            topic.name,
        )
        for entry in entries
    ]


def _broker_configs(context: Context, links: Links, call: Call) -> list[BrokerConfigV3]:
    _require_own(context, call)
    return _own_configs(context, links)


def _require_own(context: Context, call: Call) -> None:
    node_id = broker_of(context, call).node_id
    if node_id != context.face.cluster.node_id:
        raise NotFound(f"only broker {node_id} itself can show and change its settings; ask it at its own address")


def _own_configs(context: Context, links: Links) -> list[BrokerConfigV3]:
    node_id = context.face.cluster.node_id
    return [
        BrokerConfigV3(
            *_described(entry, links.resource("KafkaBrokerConfig", "brokers", node_id, "configs", entry.name)),
            node_id,
        )
        for entry in describe_broker(context.face.cluster.config, context.log_level.level)
    ]


def _described(
    entry: ConfigEntry, resource: tuple[str, Metadata, str]
) -> tuple[str, Metadata, str, str, str | None, bool, bool, bool, str, list[SynonymV3]]:
    synonyms = [SynonymV3(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms]
    return (
        *resource, entry.name, entry.value, entry.is_default, entry.is_read_only, entry.is_sensitive, entry.source,
        synonyms,
    )  # fmt: skip


def _named(configs: Iterable[TopicConfigV3] | Iterable[BrokerConfigV3], call: Call) -> TopicConfigV3 | BrokerConfigV3:
    name = call.path["name"]
    for config in configs:
        if config.name == name:
            return config
    raise NotFound(f"there is no setting {params.shown(name)}")
