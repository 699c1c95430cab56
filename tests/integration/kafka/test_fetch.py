"""Fetch: waits for enough over all partitions, gives the first batch whole, and passes no loss in silence."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.integration.http.conftest import ROOT
from tests.integration.kafka.conftest import KafkaSite, batch, fetch_tree, request_frame, values_of
from tidelog.broker.face.work import HeavyWork
from tidelog.broker.kafka.apis import Key
from tidelog.broker.kafka.connection import Connection
from tidelog.broker.kafka.slices import ENTRIES, TURN_BYTES, Turn
from tidelog.model.kafka_codes import KafkaCode
from tidelog.model.losses import AcceptedLoss, LostRanges
from tidelog.model.steps import Steps


async def test_a_fetch_waits_for_data_of_any_partition(site: KafkaSite) -> None:
    reader, writer = await site.client(), await site.client()
    waiting = asyncio.ensure_future(reader.fetch(("t", 0, 0), ("t", 1, 0), max_wait=5_000))
    while not len(site.server.parts.admission.waits):
        await asyncio.sleep(0)
    await writer.produce(("t", 1, batch(b"now")))
    empty, found = await waiting
    assert (values_of(empty.records or b""), values_of(found.records)) == ([], [b"now"])


async def test_a_wait_is_for_so_many_bytes_over_all_partitions(site: KafkaSite) -> None:
    reader, writer = await site.client(), await site.client()
    one = batch(b"x" * 100)
    waiting = asyncio.ensure_future(reader.fetch(("t", 0, 0), ("t", 1, 0), max_wait=5_000, min_bytes=2 * len(one)))
    await writer.produce(("t", 0, one))
    while not len(site.server.parts.admission.waits):
        await asyncio.sleep(0)
    assert not waiting.done()
    await writer.produce(("t", 1, one))
    assert [len(found.records) for found in await waiting] == [len(one)] * 2


async def test_a_wait_ends_at_its_time_with_what_there_is(site: KafkaSite) -> None:
    client = await site.client()
    await client.produce(("t", 0, batch(b"a")))
    (found,) = await client.fetch(("t", 0, 0), max_wait=20, min_bytes=1 << 20)
    assert values_of(found.records) == [b"a"]
    (nothing,) = await client.fetch(("t", 0, 1), max_wait=20)
    assert (nothing.error_code, nothing.records or b"") == (ErrorCode.none, b"")


async def test_a_fetch_that_waits_takes_no_task_and_leaves_with_its_connection(site: KafkaSite) -> None:
    clients = [await site.client() for _ in range(20)]
    tasks = len(asyncio.all_tasks())
    for client in clients:
        client.send(request_frame(Key.FETCH, 12, fetch_tree(("t", 0, 0), ("t", 1, 0), max_wait=30_000)))
    waits, purgatory = site.server.parts.admission.waits, site.broker.purgatory
    while len(waits) < len(clients):
        await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == tasks and purgatory.waiting == len(clients)
    for client in clients:
        await client.close()
    while len(waits):
        await asyncio.sleep(0)
    assert purgatory.waiting == 0 and not site.led().watchers


async def test_a_fetch_that_waits_hears_that_this_broker_leads_no_more(site: KafkaSite) -> None:
    client, led = await site.client(), site.led()
    for offset in (0, 0):
        (nothing,) = await client.fetch(("t", 0, offset), max_wait=20)
        assert nothing.error_code == ErrorCode.none
    waiting = asyncio.ensure_future(client.fetch(("t", 0, 0), max_wait=30_000))
    while not len(site.server.parts.admission.waits):
        await asyncio.sleep(0)
    led._end_role(is_deposed=True)
    led.watchers.wake_all()
    (gone,) = await waiting
    assert (gone.error_code, gone.high_watermark) == (ErrorCode.not_leader_or_follower, -1)


async def test_a_repeated_fetch_by_id_finds_no_other_topic_of_the_same_name(site: KafkaSite) -> None:
    client = await site.client()
    topic_id = uuid.UUID(site.broker.topic("t").topic_id)
    for _ in range(2):
        (nothing,) = await client.fetch((topic_id, 0, 0), version=13)
        assert nothing.error_code == ErrorCode.none
    await site.broker.admin.by(ROOT).delete_topic("t")
    await site.topic("t", 2)
    (gone,) = await client.fetch((topic_id, 0, 0), version=13)
    assert gone.error_code == ErrorCode.unknown_topic_id


async def test_the_records_of_an_answer_are_not_kept_for_the_next_fetch(site: KafkaSite) -> None:
    client = await site.client()
    await client.produce(("t", 0, batch(b"a")))
    (found,) = await client.fetch(("t", 0, 0))
    assert values_of(found.records) == [b"a"]
    (connection,) = site.server._connections
    request = connection._last_fetch._request
    assert request is not None and [entry.data for entry in request.entries] == [b""]
    (nothing,) = await client.fetch(("t", 0, 1))
    assert (nothing.records or b"", nothing.high_watermark) == (b"", 1)


async def test_the_first_batch_is_given_whole_and_the_others_as_long_as_there_is_room(site: KafkaSite) -> None:
    client = await site.client()
    large = batch(b"x" * 50_000)
    for partition in (0, 1):
        await client.produce(("t", partition, large))
    first, second = await client.fetch(("t", 0, 0), ("t", 1, 0), max_bytes=100, partition_bytes=10)
    assert (len(first.records), second.records or b"") == (len(large), b"")


async def test_the_batch_that_holds_an_offset_is_given_whole(site: KafkaSite) -> None:
    client = await site.client()
    await client.produce(("t", 0, batch(b"a", b"b", b"c")))
    (found,) = await client.fetch(("t", 0, 2))
    assert values_of(found.records) == [b"a", b"b", b"c"]


async def test_at_the_end_of_a_wait_there_is_what_has_come(site: KafkaSite) -> None:
    reader, writer = await site.client(), await site.client()
    waiting = asyncio.ensure_future(reader.fetch(("t", 0, 0), ("t", 1, 0), max_wait=500, min_bytes=1 << 20))
    while not len(site.server.parts.admission.waits):
        await asyncio.sleep(0)
    await writer.produce(("t", 1, batch(b"a little")))
    empty, found = await waiting
    assert (values_of(empty.records or b""), values_of(found.records)) == ([], [b"a little"])


async def test_epochs_ids_and_sessions_that_are_not_these(site: KafkaSite) -> None:
    client = await site.client()
    epoch = site.led().leader_epoch
    (newer,) = await client.fetch(("t", 0, 0), epoch=epoch + 1)
    assert newer.error_code == ErrorCode.unknown_leader_epoch
    (same,) = await client.fetch(("t", 0, 0), epoch=epoch)
    assert same.error_code == ErrorCode.none
    if epoch:
        (older,) = await client.fetch(("t", 0, 0), epoch=epoch - 1)
        assert older.error_code == ErrorCode.fenced_leader_epoch
    (unknown,) = await client.fetch((uuid.UUID(int=9), 0, 0), version=13)
    assert unknown.error_code == ErrorCode.unknown_topic_id
    session = await client.fetch_whole(("t", 0, 0), session_id=5, session_epoch=3)
    assert session.error_code == ErrorCode.fetch_session_id_not_found
    assert (await client.fetch_whole(("t", 0, 0), session_epoch=0)).session_id == 0


async def test_offsets_that_were_given_up_are_not_passed_in_silence(site: KafkaSite) -> None:
    client = await site.client()
    for value in (b"a", b"b", b"c", b"d"):
        await client.produce(("t", 0, batch(value)))
    site.led().log.give_up(LostRanges([AcceptedLoss(1, 3, 0, "tester", 1)]))
    (before,) = await client.fetch(("t", 0, 0))
    assert values_of(before.records) == [b"a"]
    for offset in (1, 2):
        (lost,) = await client.fetch(("t", 0, offset))
        assert (lost.error_code, lost.records or b"") == (KafkaCode.INVALID_RECORD, b"")
    (behind,) = await client.fetch(("t", 0, 3))
    assert values_of(behind.records) == [b"d"]


async def test_a_client_that_reads_nothing_costs_no_more_than_its_answers_bound(site: KafkaSite) -> None:
    client, other = await site.client(), await site.client()
    for _ in range(8):
        await other.produce(("t", 0, batch(b"x" * 900_000)))
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a stream's transport can
    for number in range(50):
        client.send(
            request_frame(Key.FETCH, 12, fetch_tree(("t", 0, 0), max_bytes=8 << 20, partition_bytes=8 << 20), number)
        )
    for _ in range(20):
        (done,) = await other.produce(("t", 1, batch(b"a")))
        assert done.error_code == ErrorCode.none
    assert site.server.parts.admission.answers.used <= 2 * (8 << 20)
    await client.close()
    while site.server.parts.admission.connections.open > 1:
        await asyncio.sleep(0.01)
    assert site.server.parts.admission.answers.used == 0


async def test_clients_that_read_nothing_cost_no_more_than_the_answers_budget(site: KafkaSite) -> None:
    other = await site.client()
    for _ in range(8):
        await other.produce(("t", 0, batch(b"x" * 900_000)))
    whole = fetch_tree(("t", 0, 0), max_bytes=50 << 20, partition_bytes=50 << 20)
    count = 40
    for _ in range(count):
        client = await site.client()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a stream's transport can
        client.send(request_frame(Key.FETCH, 12, whole))
    stats, answers = site.server.metrics.calls[Key.FETCH, 12], site.server.parts.admission.answers
    while stats.requests < count:
        await asyncio.sleep(0.01)
    assert stats.sent_bytes < answers.bytes_max + count * 2_000_000, "beyond the budget each gets what the system takes"
    (found,) = await other.fetch(("t", 0, 0))
    assert values_of(found.records)


async def test_a_fetch_waits_while_answers_have_no_room_and_not_for_ever(site: KafkaSite) -> None:
    client, answers = await site.client(), site.server.parts.admission.answers
    await client.produce(("t", 0, batch(b"a")))
    answers.take(4 * answers.bytes_max)
    waiting = asyncio.ensure_future(client.fetch(("t", 0, 0)))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    answers.give_back(4 * answers.bytes_max)
    assert values_of((await waiting)[0].records) == [b"a"]
    answers.take(4 * answers.bytes_max)
    site.server.parts.limits = replace(site.server.parts.limits, room_s_max=0.05)
    (nothing,) = await client.fetch(("t", 0, 0))
    assert (nothing.error_code, nothing.records or b"") == (ErrorCode.none, b"")
    answers.give_back(4 * answers.bytes_max)


async def test_a_fetch_of_many_partitions_is_served_in_slices(site: KafkaSite) -> None:
    client, count = await site.client(), 5_000
    await client.produce(("t", 1, batch(b"a")))
    before = site.broker.face.work.slices
    found = await client.fetch(*[("t", 0, 0)] * (count - 1), ("t", 1, 0))
    assert len(found) == count and values_of(found[-1].records) == [b"a"]
    assert site.broker.face.work.slices - before >= 3 * (count // ENTRIES - 1)


async def test_a_fetch_of_many_partitions_waits_and_is_woken_or_ends(site: KafkaSite) -> None:
    reader, writer = await site.client(), await site.client()
    entries = [*[("t", 0, 0)] * ENTRIES, ("t", 1, 0)]
    assert not any(found.records for found in await reader.fetch(*entries, max_wait=20))
    waiting = asyncio.ensure_future(reader.fetch(*entries, max_wait=30_000))
    while not len(site.server.parts.admission.waits):
        await asyncio.sleep(0)
    await writer.produce(("t", 1, batch(b"a")))
    assert values_of((await waiting)[-1].records) == [b"a"]
    assert site.broker.purgatory.waiting == 0


async def test_a_fetch_of_many_partitions_is_looked_at_by_its_task_alone(
    site: KafkaSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if a partition changes before the task goes on that has begun to wait."""
    finish, looks = HeavyWork.finish, list[Connection]()

    async def finish_late(work: HeavyWork, steps: Steps[Any]) -> Any:
        result = await finish(work, steps)
        site.led().watchers.wake_all()
        for _ in range(3):
            await asyncio.sleep(0)
        return result

    def look(connection: Connection) -> None:
        looks.append(connection)

    monkeypatch.setattr(HeavyWork, "finish", finish_late)
    monkeypatch.setattr(Connection, "_look_at_fetch", look)
    client = await site.client()
    found = await client.fetch(*[("t", 0, 0)] * (ENTRIES + 1), max_wait=50)
    assert len(found) == ENTRIES + 1 and not looks


async def test_a_fetch_that_cannot_wait_since_too_many_do_is_an_error(site: KafkaSite) -> None:
    client = await site.client()
    site.broker.purgatory._waiters_max = 0
    (refused,) = await client.fetch(("t", 0, 0), max_wait=30_000)
    assert refused.error_code == ErrorCode.not_leader_or_follower
    assert site.server.metrics.calls[Key.FETCH, 12].errors == 1


async def test_requests_of_one_turn_read_so_much_together_and_no_more() -> None:
    turn = Turn()
    turn.count(size=TURN_BYTES - 1)
    assert not turn.has_many_bytes
    turn.count(size=1)
    assert turn.has_many_bytes
    await asyncio.sleep(0)
    assert not turn.has_many_bytes


async def test_a_stop_ends_waits(site: KafkaSite) -> None:
    client = await site.client()
    waiting = asyncio.ensure_future(client.fetch(("t", 0, 0), max_wait=30_000))
    while not len(site.server.parts.admission.waits):
        await asyncio.sleep(0)
    await site.server.stop(5.0)
    (found,) = await waiting
    assert found.error_code == ErrorCode.none
    assert await client.receive() == b""
