"""The settings in force for a topic: its own overrides on the broker's defaults (Kafka's `LogConfig.fromProps`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import ValidationError

from tidelog.config.errors import problems
from tidelog.config.names import broker_synonyms, field_name, names_of, suggestion
from tidelog.config.schema import BrokerConfig, TopicConfig
from tidelog.config.values import NO_COMPACTION
from tidelog.model.cluster import COMMIT_ORDER, COMMIT_PROTOCOL, PAXOS
from tidelog.model.errors import InvalidRequest

FIXED: Final = (COMMIT_PROTOCOL, COMMIT_ORDER)
"""Settings that can be given only when a topic is created."""
OF_PAXOS: Final = (COMMIT_ORDER, "commit.hole.span")
"""Settings that only topics with `commit.protocol=paxos` can be given."""


def topic_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """Returns the settings of a topic with `overrides` (by dotted name). Raises `InvalidRequest` for an unknown name, a
    bad value, or a setting that the topic's commit protocol does not have."""
    for name in overrides:
        _check_name(name)
    values: dict[str, object] = {
        name: getattr(broker, field_name(synonym)) for name, synonym in broker_synonyms().items() if not is_fixed(name)
    }
    values.update(overrides)
    try:
        config = TopicConfig.model_validate(values)
    except ValidationError as error:
        text = "; ".join(f"{name} = {problem}" for name, problem in problems(error, values))
        raise InvalidRequest(f"Bad topic setting: {text}") from None
    _refuse_foreign(config, overrides)
    return config


def _refuse_foreign(config: TopicConfig, overrides: Mapping[str, str]) -> None:
    protocol = config.commit_protocol
    foreign = [name for name in OF_PAXOS if name in overrides and protocol != PAXOS]
    if foreign:
        raise InvalidRequest(
            f"Bad topic setting: {foreign[0]} = {overrides[foreign[0]]!r}: only topics with commit.protocol=paxos have "
            f"it, and this one has commit.protocol={protocol}; leave it out, or create a topic with "
            "commit.protocol=paxos"
        )


def refuse_compaction(overrides: Mapping[str, str]) -> None:
    """Raises `InvalidRequest` for `cleanup.policy=compact` in a user's topic, since users' topics cannot be
    compacted."""
    if overrides.get("cleanup.policy") == "compact":
        raise InvalidRequest(f"Bad topic setting: cleanup.policy = 'compact': {NO_COMPACTION}")


def new_topic_overrides(broker: BrokerConfig, overrides: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings to store with a user's new topic: `overrides`, and broker defaults that are fixed at
    creation. Raises `InvalidRequest`."""
    refuse_compaction(overrides)
    result: dict[str, str] = {}
    for name, synonym in broker_synonyms().items():
        value = getattr(broker, field_name(synonym))
        if is_fixed(name) and value != TopicConfig.model_fields[field_name(name)].default:
            result[name] = value
    result.update(overrides)
    topic_config(broker, result)
    return result


def is_fixed(name: str) -> bool:
    """Returns True if the setting can be given only when the topic is created. Raises `InvalidRequest` for an unknown
    name."""
    _check_name(name)
    return name in FIXED


def _check_name(name: str) -> None:
    if name not in names_of(TopicConfig):
        raise InvalidRequest(f"There is no topic setting {name}; {suggestion(name, TopicConfig)}")
