"""The loggers of a broker, as Kafka's calls show and alter them (KIP-412), of which
`kafka-configs --entity-type broker-loggers` makes use.

Kafka has a logger for each of its classes. A broker here has one, `root`, and its level is `log.level` in Kafka's
words, none below DEBUG and none above ERROR. Like a level that is set over HTTP it is in force until the broker ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from tidelog.broker.kafka.admin.codes import Refused
from tidelog.broker.kafka.admin.configs import NAME_CHARS_SHOWN, UNKNOWN, Change
from tidelog.broker.kafka.admin.desk import Desk, Tree, require_own
from tidelog.broker.kafka.apis import Key
from tidelog.config.describe import LOG_LEVEL
from tidelog.model.access import CLUSTER, Operation
from tidelog.model.kafka_codes import KafkaCode

ROOT: Final = "root"
DYNAMIC_BROKER_LOGGER_CONFIG: Final = 6
"""Kafka's number for the source of a setting (`config_source`) that all levels of loggers have."""
LEVELS: Final[Mapping[str, str]] = MappingProxyType(
    {"DEBUG": "debug", "INFO": "info", "WARN": "warning", "ERROR": "error"}
)
"""Kafka's names of log levels, each with the value of the setting `log.level` that it stands for."""


def described_loggers(desk: Desk, resource: Any) -> list[Tree]:
    """Returns the loggers of this broker that are asked for, with their levels. Raises `Refused`."""
    desk.require(Operation.DESCRIBE_CONFIGS, CLUSTER)
    require_own(desk, resource.resource_name)
    if resource.configuration_keys and ROOT not in resource.configuration_keys:
        return []
    level = next(word for word, level in LEVELS.items() if level == desk.parts.log_level.level)
    return [
        {
            "name": ROOT,
            "value": level,
            "read_only": False,
            "config_source": DYNAMIC_BROKER_LOGGER_CONFIG,
            "is_sensitive": False,
            "synonyms": [],
            "config_type": UNKNOWN,
            "documentation": None,
        }
    ]


async def alter_loggers(desk: Desk, resource: Any, *, is_trial: bool) -> None:
    """Sets the level from which on this broker logs. Raises `Refused`, and has changed nothing then."""
    desk.require(Operation.ALTER_CONFIGS, CLUSTER)
    require_own(desk, resource.resource_name)
    subject = f"{resource.resource_name}: {LOG_LEVEL}" + (" (validate only)" if is_trial else "")
    async with desk.changing(Operation.ALTER_CONFIGS, CLUSTER, subject):
        if desk.call.api.key is not Key.INCREMENTAL_ALTER_CONFIGS:
            raise Refused(KafkaCode.INVALID_REQUEST, "levels of loggers are altered by IncrementalAlterConfigs")
        level = _level(resource.configs)
        if level is not None and not is_trial:
            desk.parts.log_level.set(level)


def _level(configs: Sequence[Any]) -> str | None:
    """Returns the level that is to be set, None if there are no changes. Raises `Refused`."""
    level = None
    for config in configs:
        if config.name != ROOT:
            raise Refused(
                KafkaCode.INVALID_CONFIG,
                f"there is no logger {config.name[:NAME_CHARS_SHOWN]!r}: a broker has one, {ROOT}",
            )
        if level is not None:
            raise Refused(KafkaCode.INVALID_REQUEST, f"the level of {ROOT} is changed twice")
        if config.config_operation != Change.SET:
            raise Refused(KafkaCode.INVALID_REQUEST, f"the level of {ROOT} can be set, and not be removed or extended")
        level = LEVELS.get(config.value)
        if level is None:
            raise Refused(KafkaCode.INVALID_CONFIG, f"the levels of a logger are {', '.join(LEVELS)}")
    return level
