"""Groups are listed, described and deleted, and their offsets are, by operators; and who may do what."""

from __future__ import annotations

from typing import Any

from tests.integration.kafka.conftest import Client, KafkaSite
from tests.integration.kafka.groups.conftest import (
    GROUP,
    beat,
    codes,
    commit,
    consumer_beat,
    fetch,
    find,
    join_tree,
    lead,
    member_tree,
    offsets,
)
from tests.integration.kafka.test_versions import versions
from tidelog.broker.kafka.apis import Key
from tidelog.model.kafka_codes import KafkaCode


async def listed(client: Client, version: int = 5, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> Any:
    answer = await client.ask(Key.LIST_GROUPS, version, states_filter=states, types_filter=types)
    assert answer.error_code.value == 0
    return answer.groups


async def described(client: Client, *groups: str, version: int = 6) -> Any:
    answer = await client.ask(Key.DESCRIBE_GROUPS, version, groups=groups, include_authorized_operations=False)
    return answer.groups


async def deleted(client: Client, *groups: str, version: int = 2) -> dict[str, int]:
    answer = await client.ask(Key.DELETE_GROUPS, version, groups_names=groups)
    return {one.group_id: one.error_code.value for one in answer.results}


async def delete_offsets(client: Client, *topics: str, group: str = GROUP) -> Any:
    asked = [{"name": topic, "partitions": [{"partition_index": 0}]} for topic in topics]
    return await client.ask(Key.OFFSET_DELETE, 0, group_id=group, topics=asked)


async def test_lists_and_descriptions(site: KafkaSite) -> None:
    client = await site.client()
    assert await listed(client) == ()
    joined = await lead(client)
    await consumer_beat(client, "a", 0, group_id="k")
    await commit_as(client, "offsets-only")
    for version in versions(Key.LIST_GROUPS):
        found = {one.group_id: one for one in await listed(client, version)}
        assert {name: one.protocol_type for name, one in found.items()} == {
            "g": "consumer",
            "k": "consumer",
            "offsets-only": "",
        }
        if version >= 5:
            assert {one.group_type for one in found.values()} == {"classic", "consumer"}
    assert [one.group_id for one in await listed(client, states=("stable",))][:1] == ["g"]
    assert [one.group_id for one in await listed(client, types=("Classic",))] == ["g", "offsets-only"]
    assert [one.group_id for one in await listed(client, states=("EMPTY",))] == ["offsets-only"]
    for version in versions(Key.DESCRIBE_GROUPS):
        known, simple, other, unknown = await described(client, "g", "offsets-only", "k", "no", version=version)
        assert (known.group_state, known.protocol_type, known.protocol_data) == ("Stable", "consumer", "range")
        (member,) = known.members
        assert (member.member_id, member.client_id, member.client_host) == (joined.member_id, "tests", "/127.0.0.1")
        assert member.member_assignment == b"mine"
        assert (simple.error_code.value, simple.group_state, simple.members) == (0, "Empty", ())
        for missing in (other, unknown):
            code = KafkaCode.GROUP_ID_NOT_FOUND if version >= 6 else 0
            assert (missing.error_code.value, missing.group_state) == (code, "Dead")


async def commit_as(client: Client, group: str, topic: str = "t") -> None:
    partition = {
        "partition_index": 0,
        "committed_offset": 1,
        "committed_leader_epoch": -1,
        "committed_metadata": None,
    }
    answer = await client.ask(
        Key.OFFSET_COMMIT,
        8,
        group_id=group,
        member_id="",
        generation_id_or_member_epoch=-1,
        group_instance_id=None,
        topics=[{"name": topic, "partitions": [partition]}],
    )
    assert answer.topics[0].partitions[0].error_code.value == 0


async def test_groups_without_members_are_deleted(site: KafkaSite) -> None:
    client = await site.client()
    await lead(client)
    for version in versions(Key.DELETE_GROUPS):
        await commit_as(client, "old")
        assert await deleted(client, "old", GROUP, "no", "", version=version) == {
            "old": 0,
            GROUP: KafkaCode.NON_EMPTY_GROUP,
            "no": KafkaCode.GROUP_ID_NOT_FOUND,
            "": KafkaCode.INVALID_GROUP_ID,
        }
    assert [one.group_id for one in await listed(client)] == [GROUP]


async def test_offsets_of_groups_without_members_are_deleted(site: KafkaSite) -> None:
    await site.topic("u", 1)
    client = await site.client()
    await commit(client, ("t", 0, 3), ("u", 0, 4))
    assert (await delete_offsets(client, "t", group="no")).error_code.value == KafkaCode.GROUP_ID_NOT_FOUND
    done = await delete_offsets(client, "t", "never")
    assert (done.error_code.value, codes(done)) == (0, [0, 0])
    assert offsets(await fetch(client, ("t", 0), ("u", 0))) == [-1, 4]
    await lead(client)
    assert (await delete_offsets(client, "u")).error_code.value == KafkaCode.NON_EMPTY_GROUP


async def test_who_may_nothing_learns_nothing_and_changes_nothing() -> None:
    site = KafkaSite({"authorizer.enabled": "true", "super.users": "User:admin"})
    await site.start()
    try:
        client = await site.client()
        refused = KafkaCode.GROUP_AUTHORIZATION_FAILED
        found = await find(client, 2, key="g", key_type=0)
        assert (found.error_code.value, site.broker.groups.is_founded) == (refused, False)
        assert (await client.ask(Key.JOIN_GROUP, 9, **join_tree())).error_code.value == refused
        assert (await client.ask(Key.SYNC_GROUP, 5, **member_tree("a", 1))).error_code.value == refused
        assert await beat(client, "a", 1) == refused
        left = await client.ask(Key.LEAVE_GROUP, 5, group_id=GROUP, members=[])
        assert left.error_code.value == refused
        assert (await consumer_beat(client, "a", 0)).error_code.value == refused
        assert await commit(client, ("t", 0, 1)) == [KafkaCode.TOPIC_AUTHORIZATION_FAILED]
        assert (await fetch(client, ("t", 0))).error_code.value == refused
        assert await listed(client) == ()
        assert (await described(client, "g"))[0].error_code.value == refused
        described_too = await client.ask(
            Key.CONSUMER_GROUP_DESCRIBE, 1, group_ids=("g",), include_authorized_operations=False
        )
        assert described_too.groups[0].error_code.value == refused
        assert await deleted(client, "g") == {"g": refused}
        assert (await delete_offsets(client, "t")).error_code.value == refused
    finally:
        await site.stop()
