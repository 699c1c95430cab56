"""Groups whose coordinator assigns (KIP-848), over the wire."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.integration.kafka.conftest import Client, KafkaSite, request_frame
from tests.integration.kafka.groups.conftest import GROUP, assigned, consumer_beat, consumer_tree, lead
from tests.integration.kafka.test_versions import versions
from tidelog.broker.kafka.apis import Key
from tidelog.model.kafka_codes import KafkaCode


def owned(site: KafkaSite, *numbers: int) -> list[dict[str, Any]]:
    return [{"topic_id": uuid.UUID(site.broker.topic("t").topic_id), "partitions": numbers}]


async def describe(client: Client, *groups: str, version: int = 1) -> Any:
    answer = await client.ask(
        Key.CONSUMER_GROUP_DESCRIBE, version, group_ids=groups, include_authorized_operations=False
    )
    return answer.groups


async def test_a_life_in_every_version(site: KafkaSite) -> None:
    client = await site.client()
    for version in versions(Key.CONSUMER_GROUP_HEARTBEAT):
        await live(site, client, version)


async def live(site: KafkaSite, client: Client, version: int) -> None:
    topic_id = site.broker.topic("t").topic_id
    joined = await consumer_beat(client, "" if version == 0 else "mine", 0, version)
    assert (joined.error_code.value, bool(joined.member_id)) == (0, True)
    assert joined.heartbeat_interval.total_seconds() > 0
    assert assigned(joined) == [(topic_id, 0), (topic_id, 1)]
    me, epoch = joined.member_id, joined.member_epoch
    told = await consumer_beat(client, me, epoch, version, topic_partitions=owned(site, 0, 1))
    assert (told.error_code.value, told.assignment) == (0, None)
    quiet = await consumer_beat(client, me, epoch, version)
    assert (quiet.error_code.value, quiet.member_epoch, quiet.assignment) == (0, epoch, None)
    left = await consumer_beat(client, me, -1, version)
    assert (left.error_code.value, left.member_epoch) == (0, -1)
    assert (await consumer_beat(client, me, epoch, version)).error_code.value == KafkaCode.UNKNOWN_MEMBER_ID


async def test_a_partition_goes_over_when_it_was_given_up(site: KafkaSite) -> None:
    client = await site.client()
    first = await consumer_beat(client, "a", 0)
    await consumer_beat(client, "a", first.member_epoch, topic_partitions=owned(site, 0, 1))
    second = await consumer_beat(client, "b", 0)
    assert assigned(second) in ([], None)
    asked = await consumer_beat(client, "a", first.member_epoch)
    kept = [number for _, number in assigned(asked) or ()]
    assert len(kept) == 1
    await consumer_beat(client, "a", asked.member_epoch, topic_partitions=owned(site, *kept))
    given = await consumer_beat(client, "b", second.member_epoch)
    assert [number for _, number in assigned(given) or ()] == [1 - kept[0]]


async def test_a_fenced_member_joins_again_under_its_id_and_wants_something_else(site: KafkaSite) -> None:
    await site.topic("u", 1)
    client = await site.client()
    joined = await consumer_beat(client, "a", 0)
    await consumer_beat(client, "a", joined.member_epoch, topic_partitions=owned(site, 0, 1))
    await consumer_beat(client, "b", 0)
    moved = await consumer_beat(client, "a", joined.member_epoch)
    await consumer_beat(client, "a", moved.member_epoch, topic_partitions=owned(site, 0))
    fenced = await consumer_beat(client, "a", moved.member_epoch + 7)
    assert fenced.error_code.value == KafkaCode.FENCED_MEMBER_EPOCH
    again = await consumer_beat(client, "a", 0, subscribed_topic_names=("u",))
    assert again.error_code.value == 0
    assert assigned(again) == [(site.broker.topic("u").topic_id, 0)]


async def test_a_pattern_subscribes(site: KafkaSite) -> None:
    client = await site.client()
    joined = await consumer_beat(client, "a", 0, subscribed_topic_names=(), subscribed_topic_regex="t|u")
    assert len(assigned(joined) or ()) == 2


async def test_what_is_wrong_with_a_heartbeat_is_told(site: KafkaSite) -> None:
    client = await site.client()
    await lead(client)
    wrong: list[tuple[tuple[str, int], dict[str, Any], KafkaCode]] = [
        (("a", 0), {}, KafkaCode.GROUP_ID_NOT_FOUND),  # its members assign
        (("a", 0), {"group_id": ""}, KafkaCode.INVALID_GROUP_ID),
        (("", 0), {"group_id": "h"}, KafkaCode.INVALID_REQUEST),
        (("a", 0), {"group_id": "h", "server_assignor": "mine"}, KafkaCode.UNSUPPORTED_ASSIGNOR),
        (("a", -3), {"group_id": "h"}, KafkaCode.INVALID_REQUEST),
        (("a", 0), {"group_id": "h", "subscribed_topic_names": None}, KafkaCode.INVALID_REQUEST),
    ]
    for (member_id, epoch), terms, code in wrong:
        answer = await consumer_beat(client, member_id, epoch, **terms)
        assert (answer.error_code.value, answer.assignment) == (code, None)
        assert answer.error_message


async def test_static_members(site: KafkaSite) -> None:
    client = await site.client()
    first = await consumer_beat(client, "a", 0, instance_id="i")
    await consumer_beat(client, "a", first.member_epoch, topic_partitions=owned(site, 0, 1))
    taken = await consumer_beat(client, "b", 0, instance_id="i")
    assert taken.error_code.value == KafkaCode.UNRELEASED_INSTANCE_ID
    away = await consumer_beat(client, "a", -2, instance_id="i")
    assert (away.error_code.value, away.member_epoch) == (0, -2)
    back = await consumer_beat(client, "b", 0, instance_id="i")
    assert (back.member_epoch, len(assigned(back) or ())) == (first.member_epoch, 2)


async def test_descriptions(site: KafkaSite) -> None:
    client = await site.client()
    await consumer_beat(client, "a", 0)
    for version in versions(Key.CONSUMER_GROUP_DESCRIBE):
        known, unknown = await describe(client, GROUP, "no", version=version)
        assert (known.error_code.value, known.group_state, known.assignor_name) == (0, "Stable", "uniform")
        (member,) = known.members
        assert (member.member_id, member.client_id, member.client_host) == ("a", "tests", "/127.0.0.1")
        assert member.subscribed_topic_names == ("t",)
        for shown in (member.assignment, member.target_assignment):
            assert [(one.topic_name, one.partitions) for one in shown.topic_partitions] == [("t", (0, 1))]
        assert unknown.error_code.value == KafkaCode.GROUP_ID_NOT_FOUND


async def test_a_heartbeat_that_says_nothing_new_takes_no_task_and_gets_the_same_answer(
    site: KafkaSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, groups = await site.client(), site.broker.face.groups
    for version in versions(Key.CONSUMER_GROUP_HEARTBEAT):
        joined = await consumer_beat(client, f"m{version}", 0, version, topic_partitions=[])
        me, epoch = joined.member_id, joined.member_epoch
        await consumer_beat(client, me, epoch, version, topic_partitions=owned(site, 0, 1))
        frame = request_frame(Key.CONSUMER_GROUP_HEARTBEAT, version, consumer_tree(me, epoch, instance_id="i"))
        answers = []
        for way in ("answer_now", "ask"):
            with monkeypatch.context() as patched:
                patched.setattr(groups, "ask" if way == "answer_now" else "answer_now", lambda *_, **__: None)
                client.send(frame)
                answers.append(await client.receive())
        assert answers[0] == answers[1] != b""
        await consumer_beat(client, me, -1, version)
