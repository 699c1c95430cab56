"""A broker whose groups do not wait for more members, and what members of groups ask, each in one line."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from tests.integration.kafka.conftest import Client, KafkaSite, read_answer, request_frame, started
from tidelog.broker.kafka.apis import APIS, Key

GROUP = "g"
SESSION_MS = 10_000
QUICK = {"group.initial.rebalance.delay.ms": 0, "group.consumer.heartbeat.interval.ms": 100}


@pytest.fixture
async def site() -> AsyncIterator[KafkaSite]:
    async with started(QUICK) as made:
        yield made


def newest(key: Key, version: int) -> int:
    """This version, or the newest that there is."""
    return min(version, APIS[key].newest)


async def find(client: Client, version: int, **tree: Any) -> Any:
    """The answer to FindCoordinator."""
    client.send(request_frame(Key.FIND_COORDINATOR, version, tree))
    return read_answer(Key.FIND_COORDINATOR, version, await client.receive())


def join_tree(member_id: str = "", **terms: Any) -> dict[str, Any]:
    tree = {
        "group_id": GROUP,
        "session_timeout": SESSION_MS,
        "rebalance_timeout": SESSION_MS,
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"\0\0\0\0\0\1\0\1t\0\0\0\0"}],
        "reason": None,
    }
    return {**tree, **terms}


def member_tree(member_id: str, generation: int, **terms: Any) -> dict[str, Any]:
    """A sync or a heartbeat."""
    tree = {"group_id": GROUP, "generation_id": generation, "member_id": member_id, "group_instance_id": None}
    return {**tree, "protocol_type": "consumer", "protocol_name": "range", "assignments": [], **terms}


async def join(client: Client, version: int = 9, **terms: Any) -> Any:
    """A member's first join: with the id that it is given, if it is told to come again with that."""
    answer = await client.ask(Key.JOIN_GROUP, version, **join_tree(**terms))
    if answer.error_code.name == "member_id_required":
        answer = await client.ask(Key.JOIN_GROUP, version, **join_tree(answer.member_id, **terms))
    return answer


async def lead(client: Client, version: int = 9, **terms: Any) -> Any:
    """Joins a group that nobody is in, and syncs; its assignment is `b"mine"`. Returns the answer to the join."""
    joined = await join(client, version, **terms)
    assert joined.error_code.value == 0
    mine = [{"member_id": joined.member_id, "assignment": b"mine"}]
    synced = await client.ask(
        Key.SYNC_GROUP,
        newest(Key.SYNC_GROUP, version),
        **member_tree(joined.member_id, joined.generation_id, assignments=mine),
    )
    assert (synced.error_code.value, synced.assignment) == (0, b"mine")
    return joined


async def beat(client: Client, member_id: str, generation: int, version: int = 4) -> int:
    """The code that a heartbeat is answered with."""
    answer = await client.ask(Key.HEARTBEAT, version, **member_tree(member_id, generation))
    return int(answer.error_code.value)


async def commit(
    client: Client,
    *rows: tuple[Any, int, int],
    version: int = 9,
    member: tuple[str, int] = ("", -1),
    metadata: str | None = "",
) -> list[int]:
    """The codes of the partitions; rows have a topic (its id from version 10 on), a partition and an offset."""
    topics = [
        {
            "name": topic,
            "topic_id": topic,
            "partitions": [
                {
                    "partition_index": number,
                    "committed_offset": offset,
                    "committed_leader_epoch": -1,
                    "committed_metadata": metadata,
                }
            ],
        }
        for topic, number, offset in rows
    ]
    tree = {"group_id": GROUP, "member_id": member[0], "generation_id_or_member_epoch": member[1], "topics": topics}
    more = {"group_instance_id": None, "retention_time_ms": -1}
    answer = await client.ask(Key.OFFSET_COMMIT, version, **tree, **more)
    return [int(partition.error_code.value) for topic in answer.topics for partition in topic.partitions]


async def fetch(
    client: Client, *rows: tuple[Any, int], version: int = 9, group: str = GROUP, member: tuple[str, int] = ("", -1)
) -> Any:
    """The answer about one group; without rows about all its partitions."""
    topics = [{"name": topic, "topic_id": topic, "partition_indexes": (number,)} for topic, number in rows] or None
    asked = {"group_id": group, "topics": topics, "member_id": member[0] or None, "member_epoch": member[1]}
    answer = await client.ask(Key.OFFSET_FETCH, version, **asked, groups=[asked], require_stable=False)
    return answer.groups[0] if version >= 8 else answer


def offsets(fetched: Any) -> list[int]:
    return [partition.committed_offset for topic in fetched.topics for partition in topic.partitions]


def codes(fetched: Any) -> list[int]:
    return [int(partition.error_code.value) for topic in fetched.topics for partition in topic.partitions]


def consumer_tree(member_id: str, epoch: int, **terms: Any) -> dict[str, Any]:
    """A heartbeat of KIP-848."""
    nothing: Sequence[Any] | None = [] if epoch == 0 else None
    tree = {
        "group_id": GROUP,
        "member_id": member_id,
        "member_epoch": epoch,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": SESSION_MS if epoch == 0 else -1,
        "subscribed_topic_names": ("t",) if epoch == 0 else None,
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": nothing,
    }
    return {**tree, **terms}


async def consumer_beat(client: Client, member_id: str, epoch: int, version: int = 1, **terms: Any) -> Any:
    return await client.ask(Key.CONSUMER_GROUP_HEARTBEAT, version, **consumer_tree(member_id, epoch, **terms))


def assigned(answer: Any) -> list[tuple[str, int]] | None:
    """(topic id, partition), or None if nothing is said."""
    if answer.assignment is None:
        return None
    return [(one.topic_id.hex, number) for one in answer.assignment.topic_partitions for number in one.partitions]
