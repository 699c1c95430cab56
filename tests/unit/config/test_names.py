"""Spellings of a setting, and guesses at what somebody meant."""

from __future__ import annotations

import pytest

from tidelog.config.names import (
    FOREIGN_NAMES,
    broker_synonyms,
    environment_name,
    field_name,
    name_in_environment,
    names_of,
    suggestion,
)
from tidelog.config.schema import BrokerConfig, TopicConfig
from tidelog.config.settings.base import Settings


@pytest.mark.parametrize("settings", [BrokerConfig, TopicConfig])
def test_the_three_spellings_lead_back_to_each_other(settings: type[Settings]) -> None:
    assert [field_name(name) for name in names_of(settings)] == list(settings.model_fields)
    assert [name_in_environment(environment_name(name)) for name in names_of(settings)] == list(names_of(settings))


def test_every_synonym_is_a_setting_of_the_broker() -> None:
    assert set(broker_synonyms().values()) <= set(names_of(BrokerConfig))
    own = [name for name in names_of(TopicConfig) if name not in broker_synonyms()]
    assert own == ["commit.order", "commit.hole.span"]


def test_foreign_names_are_not_ours_and_lead_to_ours() -> None:
    ours = {*names_of(BrokerConfig), *names_of(TopicConfig)}
    assert not ours.intersection(FOREIGN_NAMES)
    assert ours.issuperset(FOREIGN_NAMES.values())


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("log.segment.byte", "log.segment.bytes"),
        ("log_segment_bytes", "log.segment.bytes"),
        ("segment.bytes", "log.segment.bytes"),
        ("segment.ms", "log.roll.ms"),
        ("retention.ms", "log.retention.ms"),
        ("log.retention.hours", "log.retention.ms"),
        ("max.message.bytes", "message.max.bytes"),
        ("log.dirs", "log.dir"),
        ("broker.id", "node.id"),
        ("listeners", "http.listener"),
    ],
)
def test_a_brokers_unknown_name_suggests_what_was_meant(name: str, meant: str) -> None:
    assert suggestion(name, BrokerConfig) == f"did you mean {meant}?"
