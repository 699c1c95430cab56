"""The admin clients that people have, as they come from PyPI, administer a broker."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

import pytest
from aiokafka import TopicPartition as AioPartition
from aiokafka.admin import NewPartitions as AioPartitions
from aiokafka.admin import NewTopic as AioTopic
from aiokafka.admin.config_resource import ConfigResource as AioResource
from aiokafka.admin.config_resource import ConfigResourceType
from aiokafka.admin.records_to_delete import RecordsToDelete
from confluent_kafka import ElectionType, TopicPartition

from tests.integration.kafka.admin_kit import CONFLUENT, aiokafka_admin, beside, confluent, kafka_python, results
from tests.integration.kafka.conftest import KafkaSite, batch, started
from tidelog.controller.access_commands import StoreUser
from tidelog.model.kafka_codes import KafkaCode
from tidelog.model.passwords import made_user

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # kafka-python reads its schemas by a deprecated call when it is imported
    PYTHON: Any = import_module("kafka.admin")

RECORDS = batch(*[b"a"] * 10)


async def test_confluent_kafka(site: KafkaSite) -> None:
    client, words = confluent(site), CONFLUENT
    await (await site.client()).produce(("t", 0, RECORDS))
    new = [words.NewTopic("c", 2, 1, config={"retention.ms": "1000"}), words.NewTopic("t", 1)]
    assert await results(client.create_topics(new)) == {"c": None, "t": KafkaCode.TOPIC_ALREADY_EXISTS}
    grown = await results(client.create_partitions([words.NewPartitions("c", 4), words.NewPartitions("no", 4)]))
    assert grown == {"c": None, "no": KafkaCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert await results(client.delete_topics(["c", "no"])) == {"c": None, "no": 3}

    topic, wrong = (words.ConfigResource(words.ResourceType.TOPIC, name) for name in ("t", "no"))
    for resource in (topic, wrong):
        resource.add_incremental_config(
            words.ConfigEntry("retention.ms", "9", incremental_operation=words.AlterConfigOpType.SET)
        )
    assert await results(client.incremental_alter_configs([topic, wrong])) == {topic: None, wrong: 3}
    broker = words.ConfigResource(words.ResourceType.BROKER, "1")
    for asked, name, value in ((topic, "retention.ms", "9"), (broker, "node.id", "1")):
        found = await results(client.describe_configs([asked]))
        assert found[asked][name].value == value

    deleted = await results(client.delete_records([TopicPartition("t", 0, 3)]))
    assert [each.low_watermark for each in deleted.values()] == [3]
    assert await beside(client.elect_leaders(ElectionType.PREFERRED, None).result, 20) == {}


async def test_confluent_kafka_and_who_may_what(site: KafkaSite) -> None:
    client, words = confluent(site), CONFLUENT
    named = (words.ResourceType.TOPIC, "t", words.ResourcePatternType.LITERAL, "User:alice", "*")
    acl = words.AclBinding(*named, words.AclOperation.READ, words.AclPermissionType.ALLOW)
    assert await results(client.create_acls([acl])) == {acl: None}
    wanted = words.AclBindingFilter(*named, words.AclOperation.ANY, words.AclPermissionType.ANY)
    assert await beside(client.describe_acls(wanted).result, 20) == [acl]
    assert await results(client.delete_acls([wanted])) == {wanted: [acl]}
    info = words.ScramCredentialInfo(words.ScramMechanism.SCRAM_SHA_256, 4_096)
    upserted = words.UserScramCredentialUpsertion("alice", info, b"a password")
    assert await results(client.alter_user_scram_credentials([upserted])) == {"alice": None}
    shown = await beside(client.describe_user_scram_credentials().result, 20)
    assert [one.iterations for one in shown["alice"].scram_credential_infos] == [4_096]


@pytest.mark.usefixtures("kafka_python_sockets")
async def test_kafka_python(site: KafkaSite) -> None:
    async with kafka_python(site) as client:
        await beside(client.create_topics, {"p": {"num_partitions": 2, "replication_factor": 1}})
        await beside(client.create_partitions, {"p": 3})
        assert len(site.broker.topic("p").partitions) == 3
        shown = await beside(client.describe_topic_partitions, ["p"], response_partition_limit=2)
        assert "'p'" in str(shown)
        await beside(client.alter_configs, [PYTHON.ConfigResource("TOPIC", "p", {"retention.ms": "8"})])
        assert site.broker.topic("p").configs == {"retention.ms": "8"}
        assert "retention.ms" in str(await beside(client.describe_configs, [PYTHON.ConfigResource("TOPIC", "p")]))
        assert "'p'" in str(await beside(client.describe_log_dirs))
        assert not await beside(client.list_partition_reassignments)
        pattern = PYTHON.ResourcePattern(PYTHON.ResourceType.TOPIC, "p")
        acl = PYTHON.ACL("User:a", "*", PYTHON.ACLOperation.READ, PYTHON.ACLPermissionType.ALLOW, pattern)
        await beside(client.create_acls, [acl])
        assert [one.principal for one in site.broker.image.access.acls] == ["User:a"]
        await beside(client.delete_acls, [acl])
        assert site.broker.image.access.acls == ()
        await beside(client.delete_topics, ["p"])
        assert "p" not in site.broker.image.topics


@pytest.mark.usefixtures("log_as_before", "kafka_python_sockets")
async def test_kafka_python_and_the_level_of_a_brokers_log(site: KafkaSite) -> None:
    async with kafka_python(site) as client:
        # The client asks first which loggers there are.
        logger = PYTHON.ConfigResource("BROKER_LOGGER", "1", {"root": "WARN"})
        assert await beside(client.alter_configs, [logger]) == {"broker_logger": {"1": "OK"}}
        assert site.log_level.level == "warning"
        shown = await beside(client.describe_configs, [PYTHON.ConfigResource("BROKER_LOGGER", "1")])
        found = shown["broker_logger"]["1"]["root"]
        assert (found["value"], found["config_source"]) == ("WARN", "DYNAMIC_BROKER_LOGGER_CONFIG")
        for name, value in (("kafka.server.KafkaApis", "WARN"), ("root", "LOUD")):
            wrong = PYTHON.ConfigResource("BROKER_LOGGER", "1", {name: value})
            told = await beside(client.alter_configs, [wrong], raise_on_unknown=False)
            assert "InvalidConfigurationError" in told["broker_logger"]["1"]
    assert site.log_level.level == "warning"


async def test_aiokafka(site: KafkaSite) -> None:
    await (await site.client()).produce(("t", 0, RECORDS))
    async with aiokafka_admin(site) as client:
        answer = await client.create_topics([AioTopic("a", 2, 1, topic_configs={"retention.ms": "1000"})])
        assert [error for _, error, *_ in answer.topic_errors] == [0]
        await client.create_partitions({"a": AioPartitions(3)})
        assert len(site.broker.topic("a").partitions) == 3
        answers = await client.describe_configs([AioResource(ConfigResourceType.TOPIC, "a")])
        assert "'retention.ms', '1000'" in str(answers[0].resources)
        await client.alter_configs([AioResource(ConfigResourceType.TOPIC, "a", configs={"retention.ms": "7"})])
        assert site.broker.topic("a").configs == {"retention.ms": "7"}
        assert await client.delete_records({AioPartition("t", 0): RecordsToDelete(4)}) == {AioPartition("t", 0): 4}
        await client.delete_topics(["a"])
    assert "a" not in site.broker.image.topics


async def test_a_user_who_was_made_so_logs_in() -> None:
    sasl = {"kafka.security.protocol": "SASL_PLAINTEXT", "sasl.enabled.mechanisms": "SCRAM-SHA-256"}
    async with started(sasl) as site:
        root = made_user("root", "the password", (b"0" * 16, b"1" * 16, b"2" * 16))
        await site.broker.admin.change_access(StoreUser(root, is_new=True))

        def client_of(user: str, password: str) -> Any:
            login = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": user, "sasl.password": password}
            return confluent(site, **{"security.protocol": "SASL_PLAINTEXT"}, **login)

        info = CONFLUENT.ScramCredentialInfo(CONFLUENT.ScramMechanism.SCRAM_SHA_256, 4_096)
        upserted = CONFLUENT.UserScramCredentialUpsertion("alice", info, b"another password")
        administrator = client_of("root", "the password")
        assert await results(administrator.alter_user_scram_credentials([upserted])) == {"alice": None}
        alice = client_of("alice", "another password")
        assert await results(alice.create_topics([CONFLUENT.NewTopic("hers", 1, 1)])) == {"hers": None}
