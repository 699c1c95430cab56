"""A topic's settings: the broker's defaults, its own on top, and honest refusals."""

from __future__ import annotations

from typing import get_args

import pytest

from tidelog.config.names import broker_synonyms, field_name, names_of
from tidelog.config.schema import BrokerConfig, TopicConfig
from tidelog.config.topics import is_fixed, new_topic_overrides, topic_config
from tidelog.model.cluster import CommitOrder
from tidelog.model.errors import InvalidRequest


def refusal(**overrides: str) -> str:
    with pytest.raises(InvalidRequest) as caught:
        topic_config(BrokerConfig(), {name.replace("_", "."): value for name, value in overrides.items()})
    return caught.value.message


def test_a_topic_without_settings_has_the_brokers() -> None:
    broker = BrokerConfig(log_segment_bytes=4096, log_roll_ms=7, message_max_bytes=5000, min_insync_replicas=4)
    config = topic_config(broker, {})
    assert (config.segment_bytes, config.segment_ms, config.max_message_bytes) == (4096, 7, 5000)
    assert config.min_insync_replicas_for(3) == 4
    for name, synonym in broker_synonyms().items():
        assert getattr(config, field_name(name)) == getattr(broker, field_name(synonym))


def test_a_bare_topic_config_is_that_of_a_default_broker() -> None:
    assert TopicConfig() == topic_config(BrokerConfig(), {})


def test_overrides_win_over_the_broker() -> None:
    config = topic_config(
        BrokerConfig(log_retention_ms=5), {"retention.ms": "-1", "message.timestamp.type": "LogAppendTime"}
    )
    assert config.retention_ms == -1
    assert config.message_timestamp_type == "LogAppendTime"


@pytest.mark.parametrize(("replicas", "needed"), [(1, 1), (2, 1), (3, 2), (5, 2)])
def test_min_insync_replicas_follow_the_replication_factor(replicas: int, needed: int) -> None:
    assert TopicConfig().min_insync_replicas_for(replicas) == needed
    assert TopicConfig(min_insync_replicas=1).min_insync_replicas_for(replicas) == 1


@pytest.mark.parametrize(("brokers", "replicas"), [(1, 1), (2, 2), (3, 3), (9, 3)])
def test_replication_factor_follows_the_number_of_brokers(brokers: int, replicas: int) -> None:
    assert BrokerConfig().replication_factor_for(brokers) == replicas
    assert BrokerConfig(default_replication_factor=5).replication_factor_for(brokers) == 5


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("retention.m", "retention.ms"),
        ("retention_ms", "retention.ms"),
        ("Segment.Bytes", "segment.bytes"),
        ("log.segment.bytes", "segment.bytes"),
        ("log.roll.ms", "segment.ms"),
        ("log.retention.hours", "retention.ms"),
        ("message.max.bytes", "max.message.bytes"),
        ("flush.messages", "ack.durability"),
        ("cleanup-policy", "cleanup.policy"),
    ],
)
def test_an_unknown_name_suggests_what_was_meant(name: str, meant: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        topic_config(BrokerConfig(), {name: "1"})
    assert caught.value.message == f"There is no topic setting {name}; did you mean {meant}?"


def test_a_name_like_no_other_points_to_the_list() -> None:
    assert refusal(zzz="1") == "There is no topic setting zzz; docs/config.md lists all names"


def test_a_bad_value_names_the_setting() -> None:
    assert refusal(retention_ms="soon") == "Bad topic setting: retention.ms = 'soon': must be a whole number"


def test_what_this_version_does_not_have_is_said() -> None:
    assert "compaction is not available in this version" in refusal(cleanup_policy="compact,delete")
    with pytest.raises(InvalidRequest, match="compaction is not available in this version"):
        new_topic_overrides(BrokerConfig(), {"cleanup.policy": "compact"})
    assert topic_config(BrokerConfig(), {"cleanup.policy": "compact"}).cleanup_policy == "compact", "the brokers' own"
    assert topic_config(BrokerConfig(), {"cleanup.policy": ""}).cleanup_policy == ""


def test_kafkas_word_for_no_compression_is_taken() -> None:
    assert topic_config(BrokerConfig(), {"compression.type": "uncompressed"}).compression_type == "none"


def test_a_config_never_changes() -> None:
    with pytest.raises(ValueError, match="frozen"):
        TopicConfig().retention_ms = 5


def test_what_is_fixed_is_noted_of_a_new_topic_where_it_is_not_the_default() -> None:
    isr, paxos = BrokerConfig(), BrokerConfig(commit_protocol="paxos")
    assert new_topic_overrides(isr, {"retention.ms": "1"}) == {"retention.ms": "1"}
    assert new_topic_overrides(paxos, {}) == {"commit.protocol": "paxos"}
    assert new_topic_overrides(paxos, {"commit.protocol": "isr"}) == {"commit.protocol": "isr"}
    assert topic_config(paxos, {}).commit_protocol == "isr", "it was created under another setting"
    with pytest.raises(InvalidRequest, match="commit"):
        new_topic_overrides(isr, {"commit.protocol": "raft"})


def test_how_a_topic_commits_is_fixed_at_creation() -> None:
    assert [name for name in names_of(TopicConfig) if is_fixed(name)] == ["commit.protocol", "commit.order"]


@pytest.mark.parametrize("order", get_args(CommitOrder))
def test_a_topic_with_paxos_chooses_its_order(order: str) -> None:
    own = {"commit.protocol": "paxos", "commit.order": order}
    assert new_topic_overrides(BrokerConfig(), own) == own
    assert topic_config(BrokerConfig(), own).commit_order == order
    paxos = BrokerConfig(commit_protocol="paxos")
    assert new_topic_overrides(paxos, {"commit.order": order}) == own, "the protocol is the broker's default"
    assert topic_config(paxos, {"commit.protocol": "paxos"}).commit_order == "total"


@pytest.mark.parametrize("order", ["Key", "keys", "", " none", "0"])
def test_an_unknown_order_is_refused_with_those_there_are(order: str) -> None:
    message = f"Bad topic setting: commit.order = {order!r}: must be 'total', 'key' or 'none'"
    assert refusal(commit_protocol="paxos", commit_order=order) == message


@pytest.mark.parametrize("span", ["0", "-1", "4097", "5000", "many", "", "1.5", "true", "9" * 30])
def test_a_bad_hole_span_is_refused_with_those_there_are(span: str) -> None:
    message = f"Bad topic setting: commit.hole.span = {span!r}: must be a whole number from 1 to 4096"
    assert refusal(commit_protocol="paxos", commit_hole_span=span) == message


def test_hole_spans() -> None:
    paxos = {"commit.protocol": "paxos", "commit.order": "none"}
    assert topic_config(BrokerConfig(), paxos).commit_hole_span == 256
    for span in (1, 4096):
        assert topic_config(BrokerConfig(), {**paxos, "commit.hole.span": str(span)}).commit_hole_span == span


@pytest.mark.parametrize("protocol", [{"commit_protocol": "isr"}, {}])
@pytest.mark.parametrize(
    ("name", "value"), [*(("commit.order", order) for order in get_args(CommitOrder)), ("commit.hole.span", "256")]
)
def test_a_topic_with_in_sync_replicas_has_no_order_to_choose(protocol: dict[str, str], name: str, value: str) -> None:
    assert refusal(**protocol, **{name: value}) == (
        f"Bad topic setting: {name} = '{value}': only topics with commit.protocol=paxos have it, and this one has "
        "commit.protocol=isr; leave it out, or create a topic with commit.protocol=paxos"
    )
    paxos = BrokerConfig(commit_protocol="paxos")
    with pytest.raises(InvalidRequest, match=r"only topics with commit\.protocol=paxos"):
        new_topic_overrides(paxos, {"commit.protocol": "isr", name: value})
