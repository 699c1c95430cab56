"""Requests about groups that are damaged or make no sense: an error or the end of the connection, and no more."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tests.integration.kafka.conftest import Client, KafkaSite, read_answer, request_frame
from tests.integration.kafka.groups.conftest import (
    GROUP,
    beat,
    consumer_tree,
    join_tree,
    lead,
    member_tree,
)
from tidelog.broker.kafka.apis import APIS, Key
from tidelog.broker.kafka.groups.table import GROUP_CALLS

UNFORESEEN = "not foreseen"
PATIENCE_S = 1.0
PARTITION = {
    "partition_index": 0,
    "committed_offset": 1,
    "committed_leader_epoch": -1,
    "committed_metadata": "",
}
TOPIC = {"name": "t", "topic_id": None, "partitions": [PARTITION], "partition_indexes": (0, 1)}
FETCH = {"group_id": GROUP, "topics": [TOPIC], "member_id": "a", "member_epoch": 1}
TREES: dict[Key, dict[str, Any]] = {
    Key.OFFSET_COMMIT: {
        "group_id": GROUP,
        "member_id": "a",
        "generation_id_or_member_epoch": 1,
        "group_instance_id": None,
        "topics": [TOPIC],
    },
    Key.OFFSET_FETCH: {**FETCH, "groups": [FETCH], "require_stable": False},
    Key.FIND_COORDINATOR: {"key": GROUP, "key_type": 0, "coordinator_keys": (GROUP, "h")},
    Key.JOIN_GROUP: join_tree(session_timeout=6_000, rebalance_timeout=10),
    Key.HEARTBEAT: member_tree("a", 1),
    Key.LEAVE_GROUP: {
        "group_id": GROUP,
        "member_id": "a",
        "members": [{"member_id": "a", "group_instance_id": None, "reason": None}],
    },
    Key.SYNC_GROUP: member_tree("a", 1, assignments=[{"member_id": "a", "assignment": b"x"}]),
    Key.DESCRIBE_GROUPS: {"groups": (GROUP,), "include_authorized_operations": False},
    Key.LIST_GROUPS: {"states_filter": ("Stable",), "types_filter": ("classic",)},
    Key.DELETE_GROUPS: {"groups_names": (GROUP, "h")},
    Key.OFFSET_DELETE: {"group_id": GROUP, "topics": [TOPIC]},
    Key.CONSUMER_GROUP_HEARTBEAT: consumer_tree("a", 0),
    Key.CONSUMER_GROUP_DESCRIBE: {"group_ids": (GROUP,), "include_authorized_operations": False},
}


def damaged(draw: random.Random, frame: bytes) -> bytes:
    """With a few other bytes behind the call and its version, or cut."""
    data = bytearray(frame)
    for _ in range(draw.randint(1, 4)):
        data[draw.randrange(8, len(data))] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
    return bytes(data[: draw.randrange(8, len(data))] if draw.random() < 0.2 else data)


async def throw(site: KafkaSite, frames: list[bytes]) -> None:
    """On a new connection after each that ends the one before, or waits for other members."""
    client = await Client.open(site.server.address)
    for frame in frames:
        client.send(frame)
        if not await answered(client):
            await client.close()
            client = await Client.open(site.server.address)
    await client.close()


async def answered(client: Client) -> bool:
    try:
        async with asyncio.timeout(PATIENCE_S):
            return bool(await client.receive())
    except TimeoutError:
        return False


async def throw_damaged(site: KafkaSite, draw: random.Random, rounds: int) -> None:
    frames = []
    for key in GROUP_CALLS:
        for _ in range(rounds):
            version = draw.randint(APIS[key].oldest, APIS[key].newest)
            if key is Key.OFFSET_COMMIT and version == 10:
                version = 9  # a topic without an id is no request
            tree = {"retention_time_ms": -1, **TREES[key]}
            frames.append(damaged(draw, request_frame(key, min(version, 9), tree)))
    await throw(site, frames)


async def test_damaged_requests(site: KafkaSite, capfd: pytest.CaptureFixture[str]) -> None:
    assert set(TREES) == set(GROUP_CALLS)
    await throw_damaged(site, random.Random(1), rounds=12)
    assert UNFORESEEN not in "".join(capfd.readouterr())
    client = await site.client()
    assert (await client.ask(Key.LIST_GROUPS, 5, states_filter=(), types_filter=())).error_code.value == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
async def test_many_damaged_requests(site: KafkaSite, capfd: pytest.CaptureFixture[str], seed: int) -> None:
    await throw_damaged(site, random.Random(seed), rounds=400)
    assert UNFORESEEN not in "".join(capfd.readouterr())


async def test_an_assignment_of_a_mebibyte_and_names_that_are_too_long(site: KafkaSite) -> None:
    client, other = await site.client(), await site.client()
    joined = await lead(client)
    mine = [{"member_id": joined.member_id, "assignment": bytes((1 << 20) - 1_000)}]
    tree = member_tree(joined.member_id, joined.generation_id, assignments=mine)
    client.send(request_frame(Key.SYNC_GROUP, 5, tree))
    told = read_answer(Key.SYNC_GROUP, 5, await client.receive())
    assert told.error_code.value in (0, 10), "the assignment in force, or too large"
    long = await other.ask(Key.JOIN_GROUP, 9, **join_tree(group_id="g" * 256))
    assert long.error_code.name == "invalid_group_id"
    assert await beat(other, "m" * 30_000, 1) == 25
