"""Leaders that move, connections that break: what is tried again, what is not, and what a client is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import pytest

from tests.integration.forwarding.conftest import Cluster, Trouble
from tests.integration.http.conftest import JSON_DOCUMENT, JSON_V2
from tidelog.broker.partitions.proposals import ProduceReceipt
from tidelog.broker.routing import bulk_calls, forwarding, leader_calls, peer_partition
from tidelog.model.batch_codec import encode_batch
from tidelog.model.batch_header import RecordBatch, split_batches
from tidelog.model.errors import (
    InvalidBatch,
    LeaderNotAvailable,
    NotLeader,
    OffsetOutOfRange,
    OutOfOrderSequence,
    Overloaded,
    TidelogError,
    TimedOutAfterAppend,
    UnknownTopic,
)
from tidelog.model.ids import KEYED_PRODUCER_BIT, ProducerId
from tidelog.model.records import Record

T = TypeVar("T")

KEYED = ProducerId(KEYED_PRODUCER_BIT | 5), 99
ORIGIN = 3


def batches(value: bytes = b"a", *, producer_id: int = -1, sequence: int = -1) -> list[RecordBatch]:
    epoch = 0 if producer_id >= 0 else -1
    encoded = encode_batch(
        [Record(1_700_000_000_000, None, value)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    return split_batches(encoded, batch_bytes_max=1 << 20)


async def produce(
    cluster: Cluster,
    sent: list[RecordBatch],
    *,
    timeout_s: float = 10.0,
    idempotency: tuple[ProducerId, int] | None = None,
    partition: int = 0,
) -> ProduceReceipt:
    handle = cluster.nodes[ORIGIN].partition("t", partition)
    deadline_s = asyncio.get_running_loop().time() + timeout_s
    return await handle.produce(sent, acks=-1, deadline_s=deadline_s, idempotency=idempotency)


async def produce_late(cluster: Cluster, timeout_s: float) -> ProduceReceipt:
    """Produces with so little time that it ends after the append; on a slow machine it may end before, for which the
    error is definite, and then produces again."""
    while True:
        try:
            return await produce(cluster, batches(), timeout_s=timeout_s)
        except TidelogError as error:
            if not error.definite:
                raise


async def has_begun(cluster: Cluster, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A request that has failed once and waits for news."""
    task = asyncio.ensure_future(work)
    watchers = cluster.nodes[ORIGIN].routing._lookup._watchers
    await cluster.sites[1].until(lambda: bool(watchers) or task.done())
    assert not task.done()
    return task


@pytest.fixture
async def two(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Topic `t`: partition 0 led by broker 1, partition 1 by broker 2. Pauses are so long that only news ends them."""
    monkeypatch.setattr(leader_calls, "PAUSE_S_MIN", 30.0)
    monkeypatch.setattr(leader_calls, "PAUSE_S_MAX", 30.0)
    await cluster.topic("t", [1, 2])
    return cluster


async def test_a_leader_that_is_just_opening_its_log_is_waited_for(two: Cluster) -> None:
    """Requests sent to a leader that has yet to open its log wait for it, and are not sent again."""
    leader = two.nodes[1]
    leader.is_late = True
    deadline_s = asyncio.get_running_loop().time() + 10.0
    here = asyncio.ensure_future(leader.partition("t", 0).produce(batches(), acks=-1, deadline_s=deadline_s))
    offsets = asyncio.ensure_future(bulk_calls.offsets_of([(leader.partition("t", 0), None)]))
    forwarded = asyncio.ensure_future(produce(two, batches()))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not here.done() and not offsets.done() and not forwarded.done()
    leader.is_late = False
    leader.routing.on_metadata_applied()
    assert sorted([(await here).base_offset or 0, (await forwarded).base_offset or 0]) == [0, 1]
    assert not isinstance((await offsets)[0], Exception)


def held(cluster: Cluster, node: int, partition: int = 0) -> list[bytes | None]:
    """Returns what a broker holds of a partition, leader or not."""
    return cluster.sites[node].values("t", partition)


# -- leaders that move -------------------------------------------------------------------------------------------------


async def test_a_request_follows_the_leader_when_the_origin_hears_of_it(two: Cluster) -> None:
    two.move("t", 0, leader=2)
    two.tell(1, 2)
    waiting = await has_begun(two, produce(two, batches()))
    assert two.net.asked == [(1, "ForwardProduce")]  # which did not pass it on
    two.tell(ORIGIN)
    assert (await waiting).acked_by == [2]
    assert (held(two, 1), held(two, 2)) == ([], [b"a"])


async def test_a_dead_leader_is_waited_for_until_there_is_another(two: Cluster) -> None:
    two.net.down[1] = None
    waiting = await has_begun(two, produce(two, batches()))
    two.move("t", 0, leader=2)
    two.tell(2, ORIGIN)
    assert (await waiting).acked_by == [2]


async def test_the_origin_may_be_the_new_leader(two: Cluster) -> None:
    two.nodes[ORIGIN]._site = two.sites[2]
    two.net.down[1] = None
    waiting = await has_begun(two, produce(two, batches()))
    two.move("t", 0, leader=ORIGIN)
    two.tell(ORIGIN)
    assert (await waiting).base_offset == 0
    assert held(two, 2) == [b"a"]
    assert not two.net.asked


async def test_a_leader_that_nobody_replaces_is_tried_again_after_a_pause(
    two: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_calls, "PAUSE_S_MIN", 0.001)
    two.net.troubles = [Trouble.UNSENT] * 3
    assert (await produce(two, batches())).acked_by == [1]


async def test_a_leader_that_is_out_of_reach_for_too_long_is_a_definite_error(two: Cluster) -> None:
    two.net.down[1] = None
    with pytest.raises(LeaderNotAvailable, match="partition t-0 could not be asked in time"):
        await produce(two, batches(), timeout_s=0.05)


async def test_a_partition_without_leader_is_refused_at_once(two: Cluster) -> None:
    two.net.down[1] = None
    waiting = await has_begun(two, produce(two, batches()))
    two.move("t", 0, leader=-1)
    two.tell(ORIGIN)
    with pytest.raises(LeaderNotAvailable, match="partition t-0 has no leader now"):
        await waiting
    with pytest.raises(LeaderNotAvailable, match="partition t-0 has no leader now"):
        two.nodes[ORIGIN].partition("t", 0)
    assert not two.net.asked


async def test_a_leader_that_has_not_heard_of_it_yet_catches_up_first(two: Cluster) -> None:
    two.move("t", 0, leader=2)
    two.tell(1, ORIGIN)
    waiting = await has_begun_at(two, 2, produce(two, batches()))
    two.tell(2)
    assert (await waiting).acked_by == [2]
    assert two.net.asked == [(2, "ForwardProduce")]


async def test_a_leader_that_does_not_catch_up_refuses(two: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "CATCH_UP_S", 0.001)
    two.move("t", 0, leader=2)
    two.tell(1, ORIGIN)
    with pytest.raises(LeaderNotAvailable, match="broker 2 does not lead t-0 in epoch 1") as caught:
        await produce(two, batches(), timeout_s=0.3)
    assert not isinstance(caught.value, NotLeader), "clients are not told what brokers tell each other"


async def test_a_topic_of_another_life_is_not_touched(two: Cluster) -> None:
    handle = two.nodes[ORIGIN].partition("t", 0)
    for site in two.sites.values():
        await site.broker.admin.delete_topic("t")
    await two.topic("t", [1, 2])
    with pytest.raises(UnknownTopic, match="was deleted, and created again"):
        await handle.read(0, bytes_max=1)
    assert not two.net.asked


async def has_begun_at(cluster: Cluster, node: int, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A request that waits for the image of the broker that it was sent to."""
    task = asyncio.ensure_future(work)
    await cluster.sites[1].until(lambda: bool(cluster.nodes[node].routing._lookup._watchers))
    return task


# -- connections that break --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", [Trouble.UNHEARD, Trouble.ANSWER_LOST])
async def test_what_a_repeat_might_append_twice_is_not_repeated(two: Cluster, trouble: Trouble) -> None:
    two.net.troubles = [trouble]
    with pytest.raises(TimedOutAfterAppend, match="may have done it: the connection was reset; retry idempotently"):
        await produce(two, batches())
    assert len(two.net.asked) == 1


@pytest.mark.parametrize("trouble", [Trouble.UNHEARD, Trouble.ANSWER_LOST])
@pytest.mark.parametrize("is_keyed", [True, False])
async def test_what_the_partition_recognises_is_repeated_and_appended_once(
    two: Cluster, monkeypatch: pytest.MonkeyPatch, trouble: Trouble, is_keyed: bool
) -> None:
    monkeypatch.setattr(leader_calls, "PAUSE_S_MIN", 0.001)
    two.net.troubles = [trouble]
    sent = batches() if is_keyed else batches(producer_id=7, sequence=0)
    receipt = await produce(two, sent, idempotency=KEYED if is_keyed else None)
    assert (receipt.base_offset, receipt.durability) == (0, "fsynced")
    assert len(two.net.asked) == 2
    assert held(two, 1) == [b"a"]


async def test_one_batch_without_a_number_forbids_the_repeat(two: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_calls, "PAUSE_S_MIN", 0.001)
    two.net.troubles = [Trouble.ANSWER_LOST]
    with pytest.raises(TimedOutAfterAppend):
        await produce(two, batches(producer_id=7, sequence=0) + batches(b"b"))
    assert held(two, 1) == [b"a", b"b"]


async def test_a_definite_error_after_an_unknown_outcome_is_told_as_unknown(
    two: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_calls, "PAUSE_S_MIN", 0.001)
    await produce(two, batches(b"first", producer_id=7, sequence=0))
    two.net.troubles = [Trouble.UNHEARD]
    with pytest.raises(TimedOutAfterAppend):
        await produce(two, batches(producer_id=7, sequence=5))
    with pytest.raises(OutOfOrderSequence):
        await produce(two, batches(producer_id=7, sequence=5))


async def test_an_answer_that_does_not_come_in_time_is_unknown(two: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_partition, "GRACE_S", 0.01)
    stall(two, 1, monkeypatch)
    with pytest.raises(TimedOutAfterAppend):
        await produce_late(two, timeout_s=0.02)


async def test_a_leader_that_is_replaced_while_it_hangs_is_not_waited_for(
    two: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    stall(two, 1, monkeypatch)
    numbered = asyncio.ensure_future(produce(two, batches(producer_id=7, sequence=0)))
    reading = asyncio.ensure_future(two.nodes[ORIGIN].partition("t", 0).read(0, bytes_max=1))
    plain = asyncio.ensure_future(produce(two, batches()))
    await two.sites[1].until(lambda: len(two.net.asked) == 3)
    two.tell(ORIGIN)
    two.appoint("t", 0, leader=2)
    assert (await numbered).acked_by == [2]
    assert (await reading).replica == 2
    assert not plain.done()  # a second try might append it twice, and the first may still be answered
    plain.cancel()


async def test_a_hanging_leader_without_successor_leaves_the_outcome_unknown(
    two: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    stall(two, 1, monkeypatch)
    numbered = asyncio.ensure_future(produce(two, batches(producer_id=7, sequence=0)))
    reading = asyncio.ensure_future(two.nodes[ORIGIN].partition("t", 0).read(0, bytes_max=1))
    await two.sites[1].until(lambda: len(two.net.asked) == 2)
    two.appoint("t", 0, leader=-1)
    with pytest.raises(TimedOutAfterAppend, match="has no leader now"):
        await numbered
    with pytest.raises(LeaderNotAvailable, match="has no leader now"):
        await reading


def stall(cluster: Cluster, node: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker hears requests, and answers none."""

    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(cluster.nodes[node].routing, "handle", never)


async def test_the_leaders_verdict_on_the_deadline_arrives(two: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = two.sites[1].broker.log_writer._runner
    run_all, release = runner.run_all, asyncio.Event()

    async def stalled(calls: Sequence[Callable[[], object]]) -> list[object]:
        await release.wait()
        return await run_all(calls)

    monkeypatch.setattr(runner, "run_all", stalled)
    with pytest.raises(TimedOutAfterAppend, match="appended, but not committed in time"):
        await produce_late(two, timeout_s=0.05)
    release.set()


@pytest.mark.parametrize("trouble", [Trouble.UNHEARD, Trouble.ANSWER_LOST])
async def test_reads_are_repeated_whatever_happened(
    two: Cluster, monkeypatch: pytest.MonkeyPatch, trouble: Trouble
) -> None:
    monkeypatch.setattr(leader_calls, "PAUSE_S_MIN", 0.001)
    await produce(two, batches())
    handle = two.nodes[ORIGIN].partition("t", 0)
    two.net.troubles = [trouble]
    assert (await handle.read(0, bytes_max=1)).next_offset == 1
    two.net.troubles = [trouble]
    assert (await handle.extent()).high_watermark == 1
    two.net.troubles = [trouble]
    assert await handle.offset_for_timestamp(0) == (0, 1_700_000_000_000)
    two.net.troubles = [trouble]
    assert await handle.fingerprint_of(KEYED[0]) is None
    two.net.troubles = [trouble]
    await handle.wait_for_data(0, bytes_min=1, deadline_s=asyncio.get_running_loop().time() + 10)
    assert not two.net.troubles


# -- what the leader says ----------------------------------------------------------------------------------------------


async def test_an_error_arrives_with_all_that_it_says(two: Cluster) -> None:
    await produce(two, batches())
    handle = two.nodes[ORIGIN].partition("t", 0)
    with pytest.raises(OffsetOutOfRange) as caught:
        await handle.read(7, bytes_max=1)
    error = caught.value
    assert (error.log_start_offset, error.log_end_offset, error.high_watermark) == (0, 1, 1)
    with pytest.raises(OffsetOutOfRange) as original:
        await two.nodes[1].partition("t", 0).read(7, bytes_max=1)
    assert (error.message, error.leader_epoch) == (original.value.message, original.value.leader_epoch)


async def test_the_leader_checks_the_batches_again(two: Cluster) -> None:
    (damaged,) = batches()
    damaged.data[-1] ^= 1
    with pytest.raises(InvalidBatch, match="CRC32C"):
        await produce(two, [damaged])
    assert held(two, 1) == []


async def test_forwarded_bytes_are_bounded_at_the_leader(two: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = two.nodes[1].routing._requests
    requests._budget.take(forwarding.PRODUCE_BYTES_MAX)
    with pytest.raises(Overloaded, match="requests forwarded by other brokers"):
        await produce(two, batches())
    requests._budget.give_back(forwarding.PRODUCE_BYTES_MAX)
    await produce(two, batches())
    assert requests._budget.used == 0


async def test_waits_at_other_brokers_are_bounded(two: Cluster) -> None:
    waits = two.nodes[ORIGIN].routing.calls._waits
    waits.under_way = peer_partition.WAITS_MAX
    handle = two.nodes[ORIGIN].partition("t", 0)
    with pytest.raises(Overloaded, match="wait for data of other brokers"):
        await handle.wait_for_data(0, bytes_min=1, deadline_s=asyncio.get_running_loop().time() + 10)
    waits.under_way = 0


# -- many partitions ---------------------------------------------------------------------------------------------------


def offsets_body(wait_ms: int = 0, *known: int) -> bytes:
    asked = [{"topic": "t", "partition": partition} for partition in (0, 1)]
    if wait_ms:
        asked = [{**one, "high_watermark": end} for one, end in zip(asked, known or (0, 0), strict=True)]
    return json.dumps({"partitions": asked, "wait_ms": wait_ms}).encode()


async def offsets(cluster: Cluster, body: bytes) -> list[dict[str, Any]]:
    reply = await cluster.nodes[ORIGIN].ask("POST", "/offsets", body, JSON_DOCUMENT)
    assert reply.status == 200
    found: list[dict[str, Any]] = reply.json()["partitions"]
    return found


async def test_offsets_take_one_request_to_each_leader(two: Cluster) -> None:
    await two.topic("u", [1, 2, 1, 2, 1])
    asked = [{"topic": "u", "partition": partition} for partition in range(5)]
    found = await offsets(two, json.dumps({"partitions": asked}).encode())
    assert [(one["partition"], one["leader"], one["high_watermark"]) for one in found] == [
        (partition, partition % 2 + 1, 0) for partition in range(5)
    ]
    assert sorted(two.net.asked) == [(1, "ForwardOffsets"), (2, "ForwardOffsets")]


async def test_a_leader_out_of_reach_costs_only_its_own_entries(two: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_calls, "PATIENCE_S", 0.02)
    two.net.down[2] = None
    first, second = await offsets(two, offsets_body())
    assert (first["error_code"], first["high_watermark"]) == (None, 0)
    assert (second["error_code"], second["high_watermark"]) == (50302, None)


async def test_offsets_follow_a_leader_that_moves(two: Cluster) -> None:
    two.move("t", 1, leader=1)
    two.tell(1, 2)
    waiting = await has_begun(two, offsets(two, offsets_body()))
    two.tell(ORIGIN)
    assert [one["leader"] for one in await waiting] == [1, 1]


@pytest.mark.parametrize("partition", [0, 1])
async def test_a_change_at_any_leader_ends_the_wait(two: Cluster, partition: int) -> None:
    waiting = asyncio.ensure_future(offsets(two, offsets_body(20_000)))
    await two.sites[1].until(lambda: all(two.nodes[node].purgatory.waiting == 1 for node in (1, 2)))
    await produce(two, batches(), partition=partition)
    assert [one["high_watermark"] for one in await waiting] == [int(partition == 0), int(partition == 1)]
    assert [two.nodes[node].purgatory.waiting for node in (1, 2)] == [0, 0], "the other wait goes on"


async def test_a_wait_ends_when_there_is_an_error_to_tell(two: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_calls, "PATIENCE_S", 0.02)
    two.net.down[2] = None
    assert (await offsets(two, offsets_body(20_000)))[1]["error_code"] == 50302


async def test_a_wait_where_nothing_happens_ends_in_time(two: Cluster) -> None:
    assert [one["high_watermark"] for one in await offsets(two, offsets_body(20))] == [0, 0]


async def test_records_for_partitions_of_several_leaders_succeed_and_fail_one_by_one(two: Cluster) -> None:
    two.net.down[2] = None
    body = json.dumps({"records": [{"value": "a", "partition": partition} for partition in (0, 1)]}).encode()
    waiting = await has_begun(two, two.nodes[ORIGIN].ask("POST", "/topics/t?timeout_ms=20000", body, JSON_V2))
    two.move("t", 1, leader=-1)
    two.tell(ORIGIN)
    reply = await waiting
    first, second = reply.json()["offsets"]
    assert (first["offset"], first["acked_by"], first["error_code"]) == (0, [1], None)
    assert (second["offset"], second["error_code"]) == (None, 50302)
    del two.net.down[2]
    two.appoint("t", 1, leader=2)
    reply = await two.nodes[ORIGIN].ask("POST", "/topics/t?timeout_ms=5000", body, JSON_V2)
    assert [one["acked_by"] for one in reply.json()["offsets"]] == [[1], [2]]


async def test_a_key_is_known_wherever_its_records_are(two: Cluster) -> None:
    headers = {**JSON_V2, "Idempotency-Key": "one"}
    for partition, status in ((1, 200), (1, 200), (0, 422)):
        body = json.dumps({"records": [{"value": "a", "partition": partition}]}).encode()
        assert (await two.nodes[ORIGIN].ask("POST", "/topics/t", body, headers)).status == status
    assert two.net.asked.count((2, "ForwardFingerprints")) == 3
