"""Settings, logs and producers are shown over Kafka's protocol, and settings of topics are changed."""

from __future__ import annotations

from typing import Any

import pytest
import structlog
from kio.schema.errors import ErrorCode

from tests.integration.kafka.conftest import KafkaSite, batch
from tests.integration.kafka.test_versions import versions
from tidelog.broker.kafka.admin.altered_configs import BROKER_THROTTLES, TOPIC_THROTTLES
from tidelog.broker.kafka.admin.configs import BROKER, BROKER_LOGGER, TOPIC, Change
from tidelog.broker.kafka.admin.loggers import LEVELS
from tidelog.broker.kafka.apis import Key
from tidelog.model.kafka_codes import KafkaCode

INVALID = KafkaCode.INVALID_REQUEST


def resource(name: str, kind: int = TOPIC, keys: Any = None, **more: Any) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, "configuration_keys": keys, **more}


async def test_settings_are_shown_with_sources_synonyms_and_words(site: KafkaSite) -> None:
    client = await site.client()
    await site.topic("own", ack_durability="replicated")
    for version in versions(Key.DESCRIBE_CONFIGS):
        asked = [resource("own", keys=["ack.durability", "retention.ms", "min.insync.racks"])]
        answer = await client.ask(
            Key.DESCRIBE_CONFIGS, version, resources=asked, include_synonyms=True, include_documentation=True
        )
        (found,) = answer.results
        told = {config.name: config for config in found.configs}
        assert set(told) == {"ack.durability", "retention.ms", "min.insync.racks"}
        assert (told["ack.durability"].value, told["ack.durability"].config_source) == ("replicated", 1)
        assert (told["retention.ms"].value, told["retention.ms"].config_source) == ("604800000", 5)
        assert [(one.name, one.source) for one in told["ack.durability"].synonyms] == [
            ("ack.durability", 1),
            ("ack.durability", 5),
        ]
        if version >= 3:
            assert (told["ack.durability"].config_type, told["retention.ms"].config_type) == (2, 5)
            assert "fsynced" in told["ack.durability"].documentation


async def test_a_setting_that_no_broker_has_is_shown_with_its_default(site: KafkaSite) -> None:
    client = await site.client()
    await site.topic("keyed", commit_protocol="paxos", commit_order="key")
    answer = await client.ask(
        Key.DESCRIBE_CONFIGS,
        4,
        resources=[resource(name, keys=["commit.order"]) for name in ("keyed", "t")],
        include_synonyms=True,
        include_documentation=True,
    )
    (own,), (default,) = (found.configs for found in answer.results)
    assert (own.value, own.config_source, own.read_only, own.config_type) == ("key", 1, True, 2)
    assert [(one.name, one.value, one.source) for one in own.synonyms] == [
        ("commit.order", "key", 1),
        ("commit.order", "total", 5),
    ]
    assert (default.value, default.config_source, len(default.synonyms)) == ("total", 5, 1)
    assert "idempotent producer" in default.documentation


async def test_each_resource_has_its_own_answer(site: KafkaSite) -> None:
    client = await site.client()
    asked = [
        resource("t", keys=[]), resource("no"), resource("a/b"), resource("1", BROKER), resource("", BROKER),
        resource("2", BROKER), resource("x", BROKER), resource("1", 8), resource("g", 32), resource("t", -7),
    ]  # fmt: skip
    answer = await client.ask(
        Key.DESCRIBE_CONFIGS, 4, resources=asked, include_synonyms=False, include_documentation=False
    )
    codes = [found.error_code.value for found in answer.results]
    assert codes == [0, 3, 17, 0, 0, INVALID, INVALID, 0, INVALID, INVALID]
    topic, broker, shared = (answer.results[place] for place in (0, 3, 4))
    assert topic.configs, "no keys stand for all, as in Kafka"
    assert all(not config.synonyms and config.documentation is None for config in topic.configs)
    told = {config.name: config for config in broker.configs}
    assert (told["node.id"].value, told["node.id"].read_only) == ("1", True)
    assert "log.level" not in told and shared.configs == ()
    (logger,) = answer.results[7].configs
    assert (logger.name, logger.value, logger.read_only, logger.config_source) == ("root", "INFO", False, 6)


def change(name: str, value: str | None, operation: int = Change.SET) -> dict[str, Any]:
    return {"name": name, "value": value, "config_operation": operation}


async def test_settings_are_changed_one_by_one(site: KafkaSite) -> None:
    client = await site.client()

    async def alter(*resources: tuple[str, list[dict[str, Any]]], trial: bool = False, kind: int = TOPIC) -> list[int]:
        asked = [resource(name, kind, configs=configs) for name, configs in resources]
        for version in versions(Key.INCREMENTAL_ALTER_CONFIGS):
            answer = await client.ask(Key.INCREMENTAL_ALTER_CONFIGS, version, resources=asked, validate_only=trial)
        return [found.error_code.value for found in answer.responses]

    assert await alter(("t", [change("retention.ms", "5")]), trial=True) == [0]
    assert site.broker.topic("t").configs == {}
    assert await alter(("t", [change("retention.ms", "5"), change("ack.durability", "replicated")]), ("no", [])) == [
        0,
        3,
    ]
    assert site.broker.topic("t").configs == {"retention.ms": "5", "ack.durability": "replicated"}
    assert await alter(("t", [change("retention.ms", None, Change.DELETE)])) == [0]
    assert site.broker.topic("t").configs == {"ack.durability": "replicated"}
    for wrong in (
        change("cleanup.policy", "compact"),
        change("commit.protocol", "paxos"),
        change("commit.order", "key"),
        change("no.such", "1"),
        change("retention.ms", "soon"),
        change("retention.ms", None),
        change("cleanup.policy", "delete", Change.APPEND),
    ):
        assert await alter(("t", [wrong])) == [KafkaCode.INVALID_CONFIG]
    await site.topic("u", commit_protocol="paxos", commit_order="key")
    assert await alter(("u", [change("commit.hole.span", "16")]), ("t", [change("commit.hole.span", "16")])) == [
        0,
        KafkaCode.INVALID_CONFIG,
    ]
    assert await alter(("u", [change("commit.hole.span", "0")])) == [KafkaCode.INVALID_CONFIG]
    assert site.broker.topic("u").configs["commit.hole.span"] == "16"
    assert await alter(("t", [change("retention.ms", "5", 9)])) == [INVALID]
    assert await alter(("t", [change("retention.ms", "5")] * 2)) == [INVALID]
    assert await alter(("t", []), ("t", [])) == [INVALID, INVALID]
    assert await alter(("1", [change("log.level", "debug")]), kind=BROKER) == [INVALID]
    assert site.broker.topic("t").configs == {"ack.durability": "replicated"}


@pytest.mark.usefixtures("log_as_before")
async def test_a_broker_has_one_logger_and_its_level_changes_while_it_runs(site: KafkaSite) -> None:
    client = await site.client()

    async def alter(*configs: dict[str, Any], broker: str = "1", trial: bool = False) -> int:
        asked = [resource(broker, BROKER_LOGGER, configs=list(configs))]
        answer = await client.ask(Key.INCREMENTAL_ALTER_CONFIGS, 1, resources=asked, validate_only=trial)
        return int(answer.responses[0].error_code.value)

    async def shown(*names: str, version: int = 4) -> list[tuple[str, str]]:
        asked = [resource("1", BROKER_LOGGER, keys=names or None)]
        terms = {"include_synonyms": True, "include_documentation": True}
        answer = await client.ask(Key.DESCRIBE_CONFIGS, version, resources=asked, **terms)
        return [(config.name, config.value) for config in answer.results[0].configs]

    assert await alter() == await alter(change("root", "DEBUG"), trial=True) == 0
    assert site.log_level.level == "info"
    for word, level in LEVELS.items():
        assert await alter(change("root", word)) == 0
        assert site.log_level.level == level
        assert await shown() == await shown("root", "other") == [("root", word)]
    assert structlog.get_config()["wrapper_class"] is structlog.make_filtering_bound_logger("error")
    for version in versions(Key.DESCRIBE_CONFIGS):
        assert await shown("other", version=version) == []
    for wrong in (
        change("tidelog.broker", "INFO"),
        change("root", "info"),
        change("root", "TRACE"),
        change("root", None),
        change("tidelog.broker", None, Change.DELETE),
    ):
        assert await alter(wrong) == KafkaCode.INVALID_CONFIG
        assert await alter(change("root", "DEBUG"), wrong) in (KafkaCode.INVALID_CONFIG, INVALID)
    for wrong in (change("root", None, Change.DELETE), change("root", "DEBUG", Change.APPEND)):
        assert await alter(wrong) == INVALID
    assert await alter(change("root", "DEBUG"), change("root", "INFO")) == INVALID
    assert await alter(change("root", "DEBUG"), broker="2") == await alter(broker="") == INVALID
    asked = [resource("1", BROKER_LOGGER, configs=[{"name": "root", "value": "DEBUG"}])]
    answer = await client.ask(Key.ALTER_CONFIGS, 2, resources=asked, validate_only=False)
    assert answer.responses[0].error_code == ErrorCode.invalid_request
    assert await shown() == [("root", "ERROR")]


async def test_throttles_of_reassignments_are_not_set_and_can_be_deleted(site: KafkaSite) -> None:
    """`kafka-reassign-partitions --verify` asks for this when all moves are done."""
    client = await site.client()

    async def alter(name: str, kind: int, *configs: dict[str, Any]) -> int:
        asked = [resource(name, kind, configs=list(configs))]
        answer = await client.ask(Key.INCREMENTAL_ALTER_CONFIGS, 1, resources=asked, validate_only=False)
        return int(answer.responses[0].error_code.value)

    rates = [change(name, None, Change.DELETE) for name in sorted(BROKER_THROTTLES)]
    replicas = [change(name, None, Change.DELETE) for name in sorted(TOPIC_THROTTLES)]
    assert await alter("1", BROKER, *rates) == 0
    assert await alter("2", BROKER, *rates) == INVALID
    assert await alter("1", BROKER, *rates, change("log.level", None, Change.DELETE)) == INVALID
    assert await alter("1", BROKER, change("leader.replication.throttled.rate", "1000")) == INVALID
    assert await alter("t", TOPIC, *replicas) == 0
    assert await alter("no", TOPIC, *replicas) == KafkaCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await alter("t", TOPIC, change("leader.replication.throttled.replicas", "*")) == KafkaCode.INVALID_CONFIG
    assert site.broker.topic("t").configs == {}


async def test_all_settings_of_a_topic_are_replaced(site: KafkaSite) -> None:
    client = await site.client()
    fixed = {"commit.protocol": "paxos", "commit.order": "key"}
    await site.topic("own", commit_protocol="paxos", commit_order="key", commit_hole_span="16", retention_ms="5")
    for version in versions(Key.ALTER_CONFIGS):
        asked = [resource("own", configs=[{"name": "segment.ms", "value": "1000"}])]
        answer = await client.ask(Key.ALTER_CONFIGS, version, resources=asked, validate_only=False)
        assert answer.responses[0].error_code == ErrorCode.none
        assert site.broker.topic("own").configs == {**fixed, "segment.ms": "1000"}
    for name, value in (("commit.protocol", "isr"), ("commit.order", "total")):
        asked = [resource("own", configs=[{"name": name, "value": value}])]
        answer = await client.ask(Key.ALTER_CONFIGS, 2, resources=asked, validate_only=False)
        assert answer.responses[0].error_code == ErrorCode.invalid_config


async def test_log_dirs_show_the_size_of_replicas(site: KafkaSite) -> None:
    client = await site.client()
    records = batch(b"a")
    await client.produce(("t", 1, records))
    for version in versions(Key.DESCRIBE_LOG_DIRS):
        for topics in (None, [{"topic": "t", "partitions": [0, 1, 1, 7, -1]}, {"topic": "no", "partitions": [0]}]):
            answer = await client.ask(Key.DESCRIBE_LOG_DIRS, version, topics=topics)
            (found,) = answer.results
            assert found.log_dir == site.config.log_dir
            (topic,) = found.topics
            sizes = {one.partition_index: one.partition_size for one in topic.partitions}
            assert sizes == {0: 0, 1: len(records)}


async def test_producers_are_shown(site: KafkaSite) -> None:
    client = await site.client()
    await client.produce(("t", 0, batch(b"a", b"b", producer_id=7, epoch=3, sequence=4)))
    topics = [{"name": "t", "partition_indexes": [0, 1, 9]}, {"name": "no", "partition_indexes": [0]}]
    answer = await client.ask(Key.DESCRIBE_PRODUCERS, 0, topics=topics)
    found, empty, beyond, unknown = (one for topic in answer.topics for one in topic.partitions)
    (producer,) = found.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 3, 5)
    assert (empty.error_code, empty.active_producers) == (ErrorCode.none, ())
    assert beyond.error_code == unknown.error_code == ErrorCode.unknown_topic_or_partition
