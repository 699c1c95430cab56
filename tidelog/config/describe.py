"""Description of settings for administrators: the value in force, its source, and the values of its other sources.

The form is that of Kafka's DescribeConfigs and of the `configs` resources of the REST v3 API. A setting's *synonyms*
are all sources that could decide its value, strongest first; the first one does.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.config.names import broker_synonyms, field_name, names_of
from tidelog.config.schema import BrokerConfig, TopicConfig
from tidelog.config.topics import is_fixed, topic_config

LOG_LEVEL: Final = "log.level"
"""The only broker setting that can be altered while the broker runs."""


class ConfigSource(enum.StrEnum):
    """Sources of a value, with Kafka's names; strongest first."""

    DYNAMIC_TOPIC_CONFIG = "DYNAMIC_TOPIC_CONFIG"
    DYNAMIC_BROKER_CONFIG = "DYNAMIC_BROKER_CONFIG"
    STATIC_BROKER_CONFIG = "STATIC_BROKER_CONFIG"
    DEFAULT_CONFIG = "DEFAULT_CONFIG"


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A source that could decide a setting's value, and its value there."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A setting in force. `value` is None if there is none, or if it is computed when used."""

    name: str
    value: str | None
    source: ConfigSource
    synonyms: tuple[ConfigSynonym, ...]
    is_read_only: bool
    is_sensitive: bool = False
    """True for a secret, whose value is hidden. No setting is one so far."""

    @property
    def is_default(self) -> bool:
        """True if the value is the default, set neither for the topic nor for the broker."""
        return self.source is ConfigSource.DEFAULT_CONFIG


def describe_topic(
    broker: BrokerConfig, overrides: Mapping[str, str], *, replication_factor: int
) -> tuple[ConfigEntry, ...]:
    """Returns every setting of a topic with these overrides. Raises `InvalidRequest` for an unknown name or a bad
    value."""
    config = topic_config(broker, overrides)
    computed = {"min.insync.replicas": str(config.min_insync_replicas_for(replication_factor))}
    entries = []
    for name in names_of(TopicConfig):
        synonyms = _inherited_synonyms(broker, name, computed)
        if is_fixed(name):
            synonyms = synonyms[-1:]  # it was created with the default, whatever the broker's setting is by now
        if name in overrides:
            synonyms = (ConfigSynonym(name, overrides[name], ConfigSource.DYNAMIC_TOPIC_CONFIG), *synonyms)
        entries.append(_entry(name, synonyms, is_read_only=is_fixed(name)))
    return tuple(entries)


def describe_broker(broker: BrokerConfig, log_level: str) -> tuple[ConfigEntry, ...]:
    """Returns every setting of a broker. `log_level` is the level of its log now, which may have been altered; all
    other settings are read-only."""
    entries = []
    for name in names_of(BrokerConfig):
        synonyms = _broker_synonyms(broker, name, {})
        if name == LOG_LEVEL and log_level != broker.log_level:
            synonyms = (ConfigSynonym(name, log_level, ConfigSource.DYNAMIC_BROKER_CONFIG), *synonyms)
        entries.append(_entry(name, synonyms, is_read_only=name != LOG_LEVEL))
    return tuple(entries)


def _entry(name: str, synonyms: tuple[ConfigSynonym, ...], *, is_read_only: bool) -> ConfigEntry:
    return ConfigEntry(name, synonyms[0].value, synonyms[0].source, synonyms, is_read_only)


def _inherited_synonyms(broker: BrokerConfig, name: str, computed: Mapping[str, str]) -> tuple[ConfigSynonym, ...]:
    """Returns the sources of a topic's setting besides the topic itself."""
    if (broker_name := broker_synonyms().get(name)) is not None:
        return _broker_synonyms(broker, broker_name, computed)
    default = as_text(TopicConfig.model_fields[field_name(name)].default)
    return (ConfigSynonym(name, default, ConfigSource.DEFAULT_CONFIG),)


def _broker_synonyms(broker: BrokerConfig, name: str, computed: Mapping[str, str]) -> tuple[ConfigSynonym, ...]:
    field = field_name(name)
    default = as_text(BrokerConfig.model_fields[field].default) or computed.get(name)
    synonyms = (ConfigSynonym(name, default, ConfigSource.DEFAULT_CONFIG),)
    if field not in broker.model_fields_set:
        return synonyms
    return (ConfigSynonym(name, as_text(getattr(broker, field)), ConfigSource.STATIC_BROKER_CONFIG), *synonyms)


def as_text(value: object) -> str | None:
    """Returns a setting's value as written in the environment or over HTTP; None if it has none."""
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case tuple():
            return ",".join(map(str, value))
        case _:
            return str(value)
