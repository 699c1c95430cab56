"""Settings as an administrator sees them: the value in force, where it came from, and what it would be otherwise.

The shape is Kafka's DescribeConfigs and the `configs` resources of the REST v3 API. A setting's *synonyms* are all the
sources that could decide its value, strongest first; the first one does.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.config.names import broker_synonyms, field_name, names_of
from tidelog.config.schema import BrokerConfig
from tidelog.config.topics import is_fixed, topic_config

LOG_LEVEL: Final = "log.level"
"""The setting of a broker that can be altered while it runs."""


class ConfigSource(enum.StrEnum):
    """The source that decided a value, in Kafka's words; strongest first."""

    DYNAMIC_TOPIC_CONFIG = "DYNAMIC_TOPIC_CONFIG"
    DYNAMIC_BROKER_CONFIG = "DYNAMIC_BROKER_CONFIG"
    STATIC_BROKER_CONFIG = "STATIC_BROKER_CONFIG"
    DEFAULT_CONFIG = "DEFAULT_CONFIG"


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A source that could decide a setting's value, and the value it would give."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A setting in force; `value` is None if there is none, or if it is computed when it is used."""

    name: str
    value: str | None
    source: ConfigSource
    synonyms: tuple[ConfigSynonym, ...]
    is_read_only: bool
    is_sensitive: bool = False
    """No setting holds a secret so far."""

    @property
    def is_default(self) -> bool:
        """True if nobody, neither for the topic nor for the broker, set it."""
        return self.source is ConfigSource.DEFAULT_CONFIG


def describe_topic(
    broker: BrokerConfig, overrides: Mapping[str, str], *, replication_factor: int
) -> tuple[ConfigEntry, ...]:
    """Returns every setting of a topic with these overrides. Raises `InvalidRequest` as `topic_config` does."""
    config = topic_config(broker, overrides)
    computed = {"min.insync.replicas": str(config.min_insync_replicas_for(replication_factor))}
    entries = []
    for name, broker_name in broker_synonyms().items():
        synonyms = _broker_synonyms(broker, broker_name, computed)
        if is_fixed(name):
            synonyms = synonyms[-1:]  # it was created with the default, whatever the broker's setting is by now
        if name in overrides:
            synonyms = (ConfigSynonym(name, overrides[name], ConfigSource.DYNAMIC_TOPIC_CONFIG), *synonyms)
        entries.append(_entry(name, synonyms, is_read_only=is_fixed(name)))
    return tuple(entries)


def describe_broker(broker: BrokerConfig, log_level: str) -> tuple[ConfigEntry, ...]:
    """Every setting of a broker, of which the level of its log may have been altered. All others are read-only: a
    broker is told its settings when it is started."""
    entries = []
    for name in names_of(BrokerConfig):
        synonyms = _broker_synonyms(broker, name, {})
        if name == LOG_LEVEL and log_level != broker.log_level:
            synonyms = (ConfigSynonym(name, log_level, ConfigSource.DYNAMIC_BROKER_CONFIG), *synonyms)
        entries.append(_entry(name, synonyms, is_read_only=name != LOG_LEVEL))
    return tuple(entries)


def _entry(name: str, synonyms: tuple[ConfigSynonym, ...], *, is_read_only: bool) -> ConfigEntry:
    return ConfigEntry(name, synonyms[0].value, synonyms[0].source, synonyms, is_read_only)


def _broker_synonyms(broker: BrokerConfig, name: str, computed: Mapping[str, str]) -> tuple[ConfigSynonym, ...]:
    field = field_name(name)
    default = as_text(BrokerConfig.model_fields[field].default) or computed.get(name)
    synonyms = (ConfigSynonym(name, default, ConfigSource.DEFAULT_CONFIG),)
    if field not in broker.model_fields_set:
        return synonyms
    return (ConfigSynonym(name, as_text(getattr(broker, field)), ConfigSource.STATIC_BROKER_CONFIG), *synonyms)


def as_text(value: object) -> str | None:
    """A setting's value as it would be written in the environment or over HTTP; None if it has none."""
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case tuple():
            return ",".join(map(str, value))
        case _:
            return str(value)
