"""Finding a group's coordinator; committing and asking for committed offsets, in every version."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.integration.kafka.conftest import Client, KafkaSite
from tests.integration.kafka.groups.conftest import (
    assigned,
    codes,
    commit,
    consumer_beat,
    fetch,
    find,
    join,
    lead,
    offsets,
)
from tests.integration.kafka.test_versions import versions
from tidelog.broker.kafka.apis import Key
from tidelog.model.errors import CoordinatorNotAvailable
from tidelog.model.kafka_codes import KafkaCode
from tidelog.model.kafka_wire import ENTRIES_MAX

NO_TOPIC = uuid.UUID(int=5)


def topic_of(site: KafkaSite, version: int, since: int = 10) -> Any:
    return uuid.UUID(site.broker.topic("t").topic_id) if version >= since else "t"


async def test_the_first_question_for_a_coordinator_makes_the_topic_of_groups(site: KafkaSite) -> None:
    client = await site.client()
    for version in versions(Key.FIND_COORDINATOR):
        answer = await find(client, version, key="g", key_type=0, coordinator_keys=("g", "h", "g", ""))
        if version < 4:
            assert (answer.error_code.value, answer.node_id, answer.port) == (0, 1, site.server.address[1])
            continue
        first, second, nameless = answer.coordinators
        assert (first.key, first.node_id, first.port) == ("g", 1, site.server.address[1])
        assert (second.key, second.error_code.value) == ("h", 0)
        assert (nameless.error_code.value, nameless.node_id, nameless.host) == (KafkaCode.INVALID_GROUP_ID, -1, "")
    assert site.broker.groups.is_founded


async def test_coordinators_of_other_things_there_are_none(site: KafkaSite) -> None:
    client = await site.client()
    one = await find(client, 1, key="mine", key_type=1)
    assert one.error_code.value == KafkaCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert "transactions" in one.error_message
    many = await find(client, 6, key_type=2, coordinator_keys=("share",))
    assert many.coordinators[0].error_code.value == KafkaCode.INVALID_REQUEST
    assert not site.broker.groups.is_founded


async def test_who_is_no_member_commits_and_asks(site: KafkaSite) -> None:
    client = await site.client()
    for version in versions(Key.OFFSET_COMMIT):
        await commit_in(version, client, topic_of(site, version))


async def commit_in(version: int, client: Client, topic: Any) -> None:
    elsewhere = NO_TOPIC if version >= 10 else "no"
    rows = [(topic, 0, 7 + version), (elsewhere, 0, 1), (topic, 9, 1), (topic, 1, -5), (topic, 1, version)]
    unknown = KafkaCode.UNKNOWN_TOPIC_ID if version >= 10 else KafkaCode.UNKNOWN_TOPIC_OR_PARTITION
    unknown_partition = KafkaCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await commit(client, *rows, version=version) == [
        0, unknown, unknown_partition, KafkaCode.INVALID_REQUEST, 0
    ]  # fmt: skip
    assert await commit(client, (topic, 0, 8), version=version, metadata="x" * 5_000) == [
        KafkaCode.OFFSET_METADATA_TOO_LARGE
    ]
    assert await commit(client, version=version) == []
    assert offsets(await fetch(client, ("t", 0), ("t", 1))) == [7 + version, version]


async def test_committed_offsets_are_told(site: KafkaSite) -> None:
    client = await site.client()
    assert await commit(client, ("t", 1, 3), metadata="as far as this") == [0]
    for version in versions(Key.OFFSET_FETCH):
        await fetch_in(version, client, topic_of(site, version))


async def fetch_in(version: int, client: Client, topic: Any) -> None:
    found = await fetch(client, (topic, 1), (topic, 0), version=version)
    assert (offsets(found), codes(found)) == ([3, -1], [0, 0])
    assert found.topics[0].partitions[0].metadata == "as far as this"
    if version >= 2:
        everything = await fetch(client, version=version)
        assert (everything.error_code.value, offsets(everything)) == (0, [3])
    nobody = await fetch(client, (topic, 1), version=version, group="other")
    assert (offsets(nobody), codes(nobody)) == ([-1], [0])
    nameless = await fetch(client, (topic, 1), version=version, group="")
    refused = codes(nameless)[0] if version < 2 else nameless.error_code.value
    assert refused == KafkaCode.INVALID_GROUP_ID
    if version >= 10:
        assert codes(await fetch(client, (NO_TOPIC, 1), version=version)) == [KafkaCode.UNKNOWN_TOPIC_ID]


@pytest.mark.parametrize("version", versions(Key.OFFSET_FETCH))
async def test_what_passes_by_itself_is_told_with_each_partition_too(
    site: KafkaSite, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    client = await site.client()

    async def refuse(*_: object, **__: object) -> None:
        raise CoordinatorNotAvailable("it loads the group")

    monkeypatch.setattr(site.broker.face.groups, "ask", refuse)
    refused = await fetch(client, (topic_of(site, version), 1), version=version)
    assert version < 2 or refused.error_code.value == KafkaCode.COORDINATOR_LOAD_IN_PROGRESS
    assert codes(refused) == ([KafkaCode.COORDINATOR_LOAD_IN_PROGRESS] if version < 8 else [])
    if version >= 2:
        assert (await fetch(client, version=version)).error_code.value == KafkaCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_many_groups_in_one_question(site: KafkaSite) -> None:
    client = await site.client()
    await commit(client, ("t", 1, 3))
    asked = [{"group_id": name, "topics": None, "member_id": None, "member_epoch": -1} for name in ("g", "", "h")]
    answer = await client.ask(Key.OFFSET_FETCH, 8, groups=asked, require_stable=True)
    assert [(one.group_id, one.error_code.value, offsets(one)) for one in answer.groups] == [
        ("g", 0, [3]),
        ("", KafkaCode.INVALID_GROUP_ID, []),
        ("h", 0, []),
    ]


async def test_commits_of_classic_members_count_by_their_generation(site: KafkaSite) -> None:
    client = await site.client()
    joined = await lead(client)
    me = (joined.member_id, joined.generation_id)
    assert await commit(client, ("t", 0, 4), member=me) == [0]
    assert await commit(client, ("t", 0, 5), member=(me[0], me[1] - 1)) == [KafkaCode.ILLEGAL_GENERATION]
    assert await commit(client, ("t", 0, 5), member=("nobody", 1)) == [KafkaCode.UNKNOWN_MEMBER_ID]
    assert await commit(client, ("t", 0, 5)) == [KafkaCode.UNKNOWN_MEMBER_ID], "it has members"
    assert offsets(await fetch(client, ("t", 0))) == [4]
    assert offsets(await fetch(client, ("t", 0), member=me)) == [4], "of its epoch nothing depends"


async def test_commits_of_consumers_count_for_what_they_own(site: KafkaSite) -> None:
    client = await site.client()
    joined = await consumer_beat(client, "a", 0)
    assert len(assigned(joined) or ()) == 2
    me = ("a", joined.member_epoch)
    assert await commit(client, ("t", 0, 4), member=me) == [0]
    assert await commit(client, ("t", 0, 5), member=("a", me[1] + 1)) == [KafkaCode.STALE_MEMBER_EPOCH]
    assert await commit(client, ("t", 0, 5), member=("b", 1)) == [KafkaCode.UNKNOWN_MEMBER_ID]
    assert offsets(await fetch(client, ("t", 0), member=me)) == [4]
    stale = await fetch(client, ("t", 0), member=("a", me[1] + 1))
    assert stale.error_code.value == KafkaCode.STALE_MEMBER_EPOCH
    assert (await join(client)).error_code.value == KafkaCode.INCONSISTENT_GROUP_PROTOCOL


async def test_more_partitions_than_others_would_wait_for_end_the_connection(site: KafkaSite) -> None:
    client, other = await site.client(), await site.client()
    asked = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": tuple(range(ENTRIES_MAX))}]}
    with pytest.raises(AssertionError, match="closed"):
        await client.ask(Key.OFFSET_FETCH, 5, **asked)
    assert offsets(await fetch(other, ("t", 0))) == [-1]
