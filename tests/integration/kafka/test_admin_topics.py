"""Topics are made, grown, described and deleted over Kafka's protocol, each item of a request by itself."""

from __future__ import annotations

import uuid
from typing import Any

from tests.integration.kafka.conftest import Client, KafkaSite
from tests.integration.kafka.test_versions import versions
from tidelog.broker.kafka.admin.codes import AdminCode
from tidelog.broker.kafka.admin.desk import ITEMS_MAX
from tidelog.broker.kafka.apis import Key
from tidelog.model.kafka_codes import KafkaCode


def topic(name: str, partitions: int = -1, replicas: int = -1, **more: Any) -> dict[str, Any]:
    tree = {"name": name, "num_partitions": partitions, "replication_factor": replicas, "assignments": []}
    return {**tree, "configs": [], **more}


async def create(client: Client, *topics: dict[str, Any], version: int = 7, trial: bool = False) -> list[Any]:
    answer = await client.ask(Key.CREATE_TOPICS, version, topics=list(topics), timeout=1_000, validate_only=trial)
    return list(answer.topics)


def setting(name: str, value: str | None) -> list[dict[str, Any]]:
    return [{"name": name, "value": value}]


async def test_topics_are_made_in_every_version(site: KafkaSite) -> None:
    client = await site.client()
    for version in versions(Key.CREATE_TOPICS):
        (made,) = await create(client, topic(f"v{version}", 3, 1), version=version)
        assert made.error_code == 0
        found = site.broker.topic(f"v{version}")
        assert len(found.partitions) == 3
        if version >= 7:
            assert made.topic_id == uuid.UUID(found.topic_id)
        if version >= 5:
            told = {config.name: (config.value, config.read_only) for config in made.configs}
            assert (made.num_partitions, made.replication_factor) == (3, 1)
            assert told["commit.protocol"] == ("isr", True)
            assert told["commit.order"] == ("total", True)


async def test_defaults_assignments_and_settings(site: KafkaSite) -> None:
    client = await site.client()
    assigned = [{"partition_index": number, "broker_ids": [1]} for number in range(2)]
    own = setting("commit.protocol", "paxos") + setting("ack.durability", "replicated")
    made = await create(client, topic("default"), topic("assigned", assignments=assigned), topic("own", configs=own))
    assert [each.error_code for each in made] == [0, 0, 0]
    assert len(site.broker.topic("assigned").partitions) == 2
    assert site.broker.topic("own").configs == {"commit.protocol": "paxos", "ack.durability": "replicated"}


async def test_an_order_of_commits_is_a_setting_like_others(site: KafkaSite) -> None:
    client = await site.client()
    by_key, isr = setting("commit.order", "key"), setting("commit.protocol", "isr")
    paxos = setting("commit.protocol", "paxos")
    made = await create(
        client, topic("keyed", configs=paxos + by_key), topic("in-sync", configs=by_key),
        topic("isr", configs=isr + by_key), topic("misspelt", configs=paxos + setting("commit.order", "keyed")),
        topic("wide", configs=paxos + by_key + setting("commit.hole.span", "5000")),
    )  # fmt: skip
    assert [each.error_code.value for each in made] == [0] + [KafkaCode.INVALID_CONFIG] * 4
    assert {config.name: config.value for config in made[0].configs}["commit.order"] == "key"
    assert "only topics with commit.protocol=paxos have it" in made[1].error_message
    assert made[3].error_message.endswith("must be 'total', 'key' or 'none'")
    assert made[4].error_message.endswith("must be a whole number from 1 to 4096")
    assert sorted(site.broker.image.topics) == ["keyed", "t"]


async def test_nothing_is_made_of_what_is_only_to_be_validated(site: KafkaSite) -> None:
    client = await site.client()
    fine, taken = await create(client, topic("new", 2), topic("t"), trial=True)
    assert (fine.error_code, fine.num_partitions, fine.topic_id) == (0, 2, None)
    assert taken.error_code == KafkaCode.TOPIC_ALREADY_EXISTS
    assert "new" not in site.broker.image.topics


async def test_each_fault_has_its_code_and_is_nobody_elses(site: KafkaSite) -> None:
    client = await site.client()
    asked = {
        "t": (topic("t"), KafkaCode.TOPIC_ALREADY_EXISTS),
        "a/b": (topic("a/b"), KafkaCode.INVALID_TOPIC_EXCEPTION),
        "x" * 32_000: (topic("x" * 32_000), KafkaCode.INVALID_TOPIC_EXCEPTION),
        "none": (topic("none", 0), AdminCode.INVALID_PARTITIONS),
        "many": (topic("many", 1 << 30), AdminCode.INVALID_PARTITIONS),
        "far": (topic("far", 1, 9), AdminCode.INVALID_REPLICATION_FACTOR),
        "compact": (topic("compact", configs=setting("cleanup.policy", "compact")), KafkaCode.INVALID_CONFIG),
        "strange": (topic("strange", configs=setting("no.such", "1")), KafkaCode.INVALID_CONFIG),
        "null": (topic("null", configs=setting("retention.ms", None)), KafkaCode.INVALID_CONFIG),
        "twice": (topic("twice", configs=setting("retention.ms", "1") * 2), KafkaCode.INVALID_CONFIG),
        "gap": (
            topic("gap", assignments=[{"partition_index": 1, "broker_ids": [1]}]),
            AdminCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        "both": (topic("both", 1, 1, assignments=[{"partition_index": 0, "broker_ids": [1]}]), 42),
        "same": (
            topic("same", assignments=[{"partition_index": 0, "broker_ids": [1]}] * 2),
            AdminCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        "good": (topic("good"), 0),
    }
    made = await create(client, *(each for each, _ in asked.values()))
    assert {each.name: each.error_code.value for each in made} == {name: int(code) for name, (_, code) in asked.items()}
    assert all(each.error_message for each in made if each.error_code)
    twice = await create(client, topic("d"), topic("d"), topic("e"))
    assert [each.error_code.value for each in twice] == [42, 42, 0]
    assert {"good", "e"} <= set(site.broker.image.topics) and "d" not in site.broker.image.topics


async def test_one_request_has_so_many_items_at_most(site: KafkaSite) -> None:
    client = await site.client()
    made = await create(client, *(topic(f"n{number}") for number in range(ITEMS_MAX + 1)))
    assert {each.error_code.value for each in made} == {42}
    assert len(site.broker.image.topics) == 1


async def test_topics_are_deleted_by_name_and_id(site: KafkaSite) -> None:
    client = await site.client()
    for version in versions(Key.DELETE_TOPICS, 1):
        named: dict[str, Any] = {"topic_names": ("t", "no", "d", "d")}
        expected = [0, 3, 42, 42]
        if version >= 6:
            gone = uuid.UUID(site.broker.topic("t").topic_id)
            pairs = [(None, gone), (None, uuid.UUID(int=5)), ("no", None), ("no", gone)]
            named = {"topics": [{"name": name, "topic_id": topic_id} for name, topic_id in pairs]}
            expected = [0, KafkaCode.UNKNOWN_TOPIC_ID, 3, 42]
        answer = await client.ask(Key.DELETE_TOPICS, version, timeout=1_000, **named)
        assert [each.error_code.value for each in answer.responses] == expected
        assert "t" not in site.broker.image.topics
        await site.topic("t")


async def test_topics_grow(site: KafkaSite) -> None:
    client = await site.client()

    async def grow(version: int, *topics: tuple[str, int, Any], trial: bool = False) -> list[int]:
        named = [{"name": name, "count": count, "assignments": where} for name, count, where in topics]
        answer = await client.ask(Key.CREATE_PARTITIONS, version, topics=named, timeout=1_000, validate_only=trial)
        return [each.error_code.value for each in answer.results]

    invalid, have = AdminCode.INVALID_PARTITIONS, 2
    for version in versions(Key.CREATE_PARTITIONS):
        assert await grow(version, ("t", have + 1, None), trial=True) == [0]
        assert len(site.broker.topic("t").partitions) == have
        have += 2
        assert await grow(version, ("t", have, None), ("no", 4, None)) == [0, 3]
        assert await grow(version, ("t", have, None)) == await grow(version, ("t", -1, None)) == [invalid]
        here = {"broker_ids": (1,)}
        for trial in (True, False):
            for wrong in ([], [here] * 2, [{"broker_ids": (9,)}], [{"broker_ids": (1, 1)}], [{"broker_ids": ()}]):
                assert await grow(version, ("t", have + 1, wrong), trial=trial) == [
                    AdminCode.INVALID_REPLICA_ASSIGNMENT
                ]
        assert await grow(version, ("t", have + 2, [here] * 2), trial=True) == [0]
        assert len(site.broker.topic("t").partitions) == have
        have += 2
        assert await grow(version, ("t", have, [here] * 2)) == [0]
        assert await grow(version, ("t", have + 1, None), ("t", have + 2, None)) == [42, 42]
        assert len(site.broker.topic("t").partitions) == have


async def test_topics_are_described_a_page_at_a_time(site: KafkaSite) -> None:
    client = await site.client()
    await site.topic("u", 3)

    async def pages(names: list[str], limit: int) -> list[list[tuple[str, int, list[int]]]]:
        found, cursor = [], None
        while True:
            answer = await client.ask(
                Key.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[{"name": name} for name in names],
                response_partition_limit=limit, cursor=cursor,
            )  # fmt: skip
            found.append(
                [
                    (each.name, each.error_code.value, [one.partition_index for one in each.partitions])
                    for each in answer.topics
                ]
            )
            if answer.next_cursor is None:
                return found
            cursor = answer.next_cursor

    assert await pages([], 2_000) == [[("t", 0, [0, 1]), ("u", 0, [0, 1, 2])]]
    assert await pages([], 3) == [[("t", 0, [0, 1]), ("u", 0, [0])], [("u", 0, [1, 2])]]
    assert await pages(["u", "no", "a/b"], 1) == [
        [("a/b", 17, [])],
        [("no", 3, [])],
        [("u", 0, [0])],
        [("u", 0, [1])],
        [("u", 0, [2])],
    ]
