"""The settings in force for a topic: its own overrides on the broker's defaults (Kafka's `LogConfig.fromProps`)."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError

from tidelog.config.errors import problems
from tidelog.config.names import broker_synonyms, field_name, names_of, suggestion
from tidelog.config.schema import BrokerConfig, TopicConfig
from tidelog.model.errors import InvalidRequest


def topic_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """The topic's settings, `overrides` by dotted name. Raises `InvalidRequest` for an unknown name or a bad value."""
    values: dict[str, object] = {
        name: getattr(broker, field_name(synonym)) for name, synonym in broker_synonyms().items()
    }
    for name in overrides:
        _check_name(name)
    values.update(overrides)
    try:
        return TopicConfig.model_validate(values)
    except ValidationError as error:
        text = "; ".join(f"{name} = {problem}" for name, problem in problems(error, values))
        raise InvalidRequest(f"Bad topic setting: {text}") from None


def is_fixed(name: str) -> bool:
    """True if the setting can be given only when the topic is created. `InvalidRequest` if there is no such one."""
    _check_name(name)
    return name == "commit.protocol"


def _check_name(name: str) -> None:
    if name not in names_of(TopicConfig):
        raise InvalidRequest(f"There is no topic setting {name}; {suggestion(name, TopicConfig)}")
