"""Classic groups over the wire: every version, what waits and for whom, and how a wait ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.integration.kafka.conftest import Client, KafkaSite, request_frame
from tests.integration.kafka.groups.conftest import (
    GROUP,
    beat,
    join,
    join_tree,
    lead,
    member_tree,
    newest,
)
from tests.integration.kafka.test_versions import versions
from tidelog.broker.groups.classics import Classics
from tidelog.broker.kafka.apis import Key
from tidelog.broker.kafka.call import Call
from tidelog.broker.kafka.groups import beats
from tidelog.model.access import Caller
from tidelog.model.classic_groups import ClassicHeartbeat
from tidelog.model.groups import Heartbeat
from tidelog.model.kafka_codes import KafkaCode

SILENCE_S = 0.05


async def until_waiting(site: KafkaSite, count: int) -> None:
    """So many joins and syncs wait at the coordinator."""
    coordinator = site.broker.groups.local(GROUP)
    assert coordinator is not None
    async with asyncio.timeout(5.0):
        classics = await coordinator.classics(asyncio.get_running_loop().time() + 5.0)
        while classics.waiting != count:
            await asyncio.sleep(0.005)


async def leave(client: Client, member_id: str, version: int = 5, instance_id: str | None = None) -> Any:
    members = [{"member_id": member_id, "group_instance_id": instance_id, "reason": None}]
    return await client.ask(Key.LEAVE_GROUP, version, group_id=GROUP, member_id=member_id, members=members)


async def test_a_life_in_every_version(site: KafkaSite) -> None:
    client = await site.client()
    for version in versions(Key.JOIN_GROUP):
        await live(client, version)


async def live(client: Client, version: int) -> None:
    joined = await lead(client, version)
    assert (joined.leader, joined.protocol_name) == (joined.member_id, "range")
    assert [one.member_id for one in joined.members] == [joined.member_id]
    assert joined.members[0].metadata == join_tree()["protocols"][0]["metadata"]
    beats = newest(Key.HEARTBEAT, version)
    assert await beat(client, joined.member_id, joined.generation_id, beats) == 0
    assert await beat(client, joined.member_id, joined.generation_id - 1, beats) == KafkaCode.ILLEGAL_GENERATION
    leaves = newest(Key.LEAVE_GROUP, version)
    assert (await leave(client, joined.member_id, leaves)).error_code.value == 0
    again = await leave(client, joined.member_id, leaves)
    code = again.members[0].error_code if leaves >= 3 else again.error_code
    assert code.value == KafkaCode.UNKNOWN_MEMBER_ID
    assert await beat(client, joined.member_id, joined.generation_id, beats) == KafkaCode.UNKNOWN_MEMBER_ID


async def test_what_is_wrong_with_a_join_is_told(site: KafkaSite) -> None:
    client = await site.client()
    wrong: list[dict[str, Any]] = [{"group_id": ""}, {"session_timeout": 1}, {"member_id": "no"}, {"protocols": []}]
    for version in (5, 9):
        refused = [await client.ask(Key.JOIN_GROUP, version, **join_tree(**terms)) for terms in wrong]
        assert [answer.error_code.value for answer in refused] == [
            KafkaCode.INVALID_GROUP_ID,
            KafkaCode.INVALID_SESSION_TIMEOUT,
            KafkaCode.UNKNOWN_MEMBER_ID,
            KafkaCode.INCONSISTENT_GROUP_PROTOCOL,
        ]
        assert refused[2].member_id == "no"
    synced = await client.ask(Key.SYNC_GROUP, 5, **member_tree("no", 1))
    assert (synced.error_code.value, synced.assignment) == (KafkaCode.UNKNOWN_MEMBER_ID, b"")


async def test_a_join_that_waits_holds_its_connection_and_no_other(site: KafkaSite) -> None:
    first, second = await site.client(), await site.client()
    leader = await lead(first)
    given = await second.ask(Key.JOIN_GROUP, 9, **join_tree())
    second.send(request_frame(Key.JOIN_GROUP, 9, join_tree(given.member_id), correlation_id=1))
    second.send(request_frame(Key.API_VERSIONS, 0, {}, correlation_id=2))
    await until_waiting(site, 1)
    behind = asyncio.create_task(second.receive())
    code = await beat(first, leader.member_id, leader.generation_id)
    assert code == KafkaCode.REBALANCE_IN_PROGRESS, "others are answered"
    await asyncio.wait([behind], timeout=SILENCE_S)
    assert not behind.done()
    again = await first.ask(Key.JOIN_GROUP, 9, **join_tree(leader.member_id))
    assert {one.member_id for one in again.members} == {leader.member_id, given.member_id}
    assert int.from_bytes((await behind)[:4]) == 1
    assert int.from_bytes((await second.receive())[:4]) == 2


async def test_a_client_that_goes_away_ends_its_wait(site: KafkaSite) -> None:
    first, second = await site.client(), await site.client()
    await lead(first)
    given = await second.ask(Key.JOIN_GROUP, 9, **join_tree())
    second.send(request_frame(Key.JOIN_GROUP, 9, join_tree(given.member_id)))
    await until_waiting(site, 1)
    await second.close()
    await until_waiting(site, 0)


async def test_a_broker_that_stops_sends_those_who_wait_away(site: KafkaSite) -> None:
    first, second = await site.client(), await site.client()
    await lead(first)
    given = await second.ask(Key.JOIN_GROUP, 9, **join_tree())
    waiting = asyncio.create_task(second.ask(Key.JOIN_GROUP, 9, **join_tree(given.member_id)))
    await until_waiting(site, 1)
    stopping = asyncio.create_task(site.server.stop(1.0))
    assert (await waiting).error_code.value == KafkaCode.NOT_COORDINATOR
    await stopping


async def test_a_static_member_that_comes_back_fences_who_it_was(site: KafkaSite) -> None:
    first, second = await site.client(), await site.client()
    was = await lead(first, group_instance_id="i")
    now = await join(second, group_instance_id="i")
    assert (now.error_code.value, now.generation_id) == (0, was.generation_id), "nobody else notices"
    fenced = await first.ask(Key.HEARTBEAT, 4, **member_tree(was.member_id, was.generation_id, group_instance_id="i"))
    assert fenced.error_code.value == KafkaCode.FENCED_INSTANCE_ID
    gone = await leave(second, "", instance_id="i")
    assert (gone.error_code.value, gone.members[0].error_code.value) == (0, 0)


async def test_heartbeats_in_a_row_are_answered_in_order(site: KafkaSite) -> None:
    client = await site.client()
    joined = await lead(client)
    for correlation_id in range(50):
        tree = member_tree(joined.member_id, joined.generation_id)
        client.send(request_frame(Key.HEARTBEAT, 4, tree, correlation_id))
    answers = [await client.receive() for _ in range(50)]
    assert [int.from_bytes(answer[:4]) for answer in answers] == list(range(50))


async def test_a_heartbeat_that_all_is_well_with_is_heard_and_takes_no_task(
    site: KafkaSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await site.client()
    joined = await lead(client)
    coordinator = site.broker.groups.local(GROUP)
    assert coordinator is not None
    classics = await coordinator.classics(asyncio.get_running_loop().time() + 5.0)
    deadlines = classics._deadlines
    monkeypatch.setattr(Classics, "heartbeat", None)
    for version in versions(Key.HEARTBEAT):
        due_s = deadlines.next_s()
        assert await beat(client, joined.member_id, joined.generation_id, version) == 0
        later_s = deadlines.next_s()
        assert due_s is not None and later_s is not None and later_s > due_s, "its session begins anew"


async def test_a_repeated_heartbeat_is_decoded_once_and_judged_each_time(
    site: KafkaSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await site.client()
    joined = await lead(client)
    me, generation = joined.member_id, joined.generation_id
    assert await beat(client, me, generation) == 0
    read, frames = beats._READERS[Key.HEARTBEAT], list[bytes]()

    def counted(call: Call, caller: Caller) -> ClassicHeartbeat | Heartbeat | None:
        frames.append(bytes(call.frame))
        return read(call, caller)

    monkeypatch.setattr(beats, "_READERS", {Key.HEARTBEAT: counted})
    assert [await beat(client, me, generation) for _ in range(3)] == [0, 0, 0]
    assert not frames
    # Another one in between, which is an error, and another version are other requests.
    assert await beat(client, me, generation + 1) == KafkaCode.ILLEGAL_GENERATION
    assert await beat(client, me, generation, 3) == 0
    assert [await beat(client, me, generation) for _ in range(2)] == [0, 0]
    assert len(frames) == 3
    gone = await leave(client, me)
    assert gone.error_code.value == 0
    assert await beat(client, me, generation) == KafkaCode.UNKNOWN_MEMBER_ID
