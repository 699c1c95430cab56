"""What an administrator is shown: the value in force, who decided it, and the runners-up."""

from __future__ import annotations

import pytest

from tidelog.config.describe import ConfigEntry, ConfigSource, describe_broker, describe_topic
from tidelog.config.names import names_of
from tidelog.config.schema import BrokerConfig, TopicConfig
from tidelog.model.errors import InvalidRequest

TOPIC, DYNAMIC, BROKER, DEFAULT = ConfigSource


def entry(entries: tuple[ConfigEntry, ...], name: str) -> ConfigEntry:
    (found,) = [entry for entry in entries if entry.name == name]
    return found


def synonyms(entry: ConfigEntry) -> list[tuple[str, str | None, ConfigSource]]:
    return [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms]


def test_every_setting_is_described_once_and_in_order() -> None:
    described = describe_topic(BrokerConfig(), {}, replication_factor=1)
    assert tuple(entry.name for entry in described) == names_of(TopicConfig)
    assert tuple(entry.name for entry in describe_broker(BrokerConfig(), "info")) == names_of(BrokerConfig)


def test_an_override_comes_first_then_the_broker_then_the_default() -> None:
    broker = BrokerConfig(log_segment_bytes=4096)
    described = entry(describe_topic(broker, {"segment.bytes": "2048"}, replication_factor=1), "segment.bytes")
    assert (described.value, described.source, described.is_default) == ("2048", TOPIC, False)
    assert synonyms(described) == [
        ("segment.bytes", "2048", TOPIC),
        ("log.segment.bytes", "4096", BROKER),
        ("log.segment.bytes", "1073741824", DEFAULT),
    ]


def test_a_value_from_the_broker_is_not_a_default() -> None:
    described = entry(describe_topic(BrokerConfig(log_retention_ms=5), {}, replication_factor=1), "retention.ms")
    assert (described.value, described.source, described.is_default) == ("5", BROKER, False)


def test_a_value_nobody_set_is_a_default() -> None:
    described = entry(describe_topic(BrokerConfig(), {}, replication_factor=1), "retention.ms")
    assert (described.value, described.source, described.is_default) == ("604800000", DEFAULT, True)


@pytest.mark.parametrize(("replicas", "needed"), [(1, "1"), (3, "2")])
def test_a_computed_default_is_shown_as_computed(replicas: int, needed: str) -> None:
    described = entry(describe_topic(BrokerConfig(), {}, replication_factor=replicas), "min.insync.replicas")
    assert (described.value, described.is_default) == (needed, True)
    assert synonyms(described) == [("min.insync.replicas", needed, DEFAULT)]


def test_only_what_cannot_be_altered_is_read_only() -> None:
    described = describe_topic(BrokerConfig(), {}, replication_factor=1)
    assert [entry.name for entry in described if entry.is_read_only] == ["commit.protocol", "commit.order"]


def test_a_setting_that_no_broker_has_comes_from_the_topic_or_is_the_default() -> None:
    described = entry(describe_topic(BrokerConfig(), {}, replication_factor=3), "commit.order")
    assert (described.value, described.is_default, described.is_read_only) == ("total", True, True)
    assert synonyms(described) == [("commit.order", "total", DEFAULT)]
    own = {"commit.protocol": "paxos", "commit.order": "key"}
    described = entry(describe_topic(BrokerConfig(), own, replication_factor=3), "commit.order")
    assert (described.value, described.source) == ("key", TOPIC)
    assert synonyms(described) == [("commit.order", "key", TOPIC), ("commit.order", "total", DEFAULT)]


def test_values_are_spelt_as_they_would_be_given() -> None:
    broker = BrokerConfig(delete_topic_enable=False, cluster_voters=("1@127.0.0.1:9192",))
    described = describe_broker(broker, "info")
    assert entry(described, "delete.topic.enable").value == "false"
    assert entry(described, "cluster.voters").value == "1@127.0.0.1:9192"
    assert entry(described, "broker.rack").value is None
    assert synonyms(entry(described, "delete.topic.enable")) == [
        ("delete.topic.enable", "false", BROKER),
        ("delete.topic.enable", "true", DEFAULT),
    ]


def test_bad_overrides_are_refused() -> None:
    with pytest.raises(InvalidRequest):
        describe_topic(BrokerConfig(), {"retention.ms": "x"}, replication_factor=1)


def test_only_the_log_level_of_a_broker_can_be_altered() -> None:
    broker = BrokerConfig(log_level="warning")
    assert [known.name for known in describe_broker(broker, "warning") if not known.is_read_only] == ["log.level"]
    assert entry(describe_broker(broker, "warning"), "log.level").source is BROKER
    altered = entry(describe_broker(broker, "debug"), "log.level")
    assert synonyms(altered) == [
        ("log.level", "debug", DYNAMIC),
        ("log.level", "warning", BROKER),
        ("log.level", "info", DEFAULT),
    ]
