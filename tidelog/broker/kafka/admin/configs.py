"""Resource types, config sources and other numbers of Kafka's config requests, and checks that these requests share."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tidelog.broker.kafka.admin.codes import Refused
from tidelog.config.describe import ConfigEntry, ConfigSource
from tidelog.model.kafka_codes import KafkaCode

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
UNKNOWN: Final = 0
"""Kafka's number for the type of a setting (`config_type`) that names no type."""
SOURCES: Final[Mapping[ConfigSource, int]] = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG: 1,
    ConfigSource.DYNAMIC_BROKER_CONFIG: 2,
    ConfigSource.STATIC_BROKER_CONFIG: 4,
    ConfigSource.DEFAULT_CONFIG: 5,
}
NAME_CHARS_SHOWN: Final = 100


class Change(enum.IntEnum):
    """Operations on a setting, with Kafka's numbers (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def given_settings(pairs: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """Returns the values of settings by name. Raises `Refused` for a name given twice, or without a value."""
    settings: dict[str, str] = {}
    for name, value in pairs:
        if name in settings:
            raise Refused(KafkaCode.INVALID_CONFIG, f"the setting {name[:NAME_CHARS_SHOWN]!r} is given twice")
        if value is None:
            raise Refused(KafkaCode.INVALID_CONFIG, f"the setting {name[:NAME_CHARS_SHOWN]!r} has no value")
        settings[name] = value
    return settings


def unknown_kind(kind: int) -> Refused:
    """Returns the error for a resource type that has no settings."""
    return Refused(
        KafkaCode.INVALID_REQUEST,
        f"there are settings of topics (2), brokers (4) and loggers of brokers (8), not of type {kind}",
    )


def setting_tree(entry: ConfigEntry) -> dict[str, Any]:
    """Returns a setting under the field names that CreateTopics and DescribeConfigs share."""
    return {
        "name": entry.name,
        "value": entry.value,
        "read_only": entry.is_read_only,
        "config_source": SOURCES[entry.source],
        "is_sensitive": entry.is_sensitive,
    }
