"""A partition's promises: order, all or nothing, durable before visible, exactly one answer."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.unit.broker.conftest import Bench, batch, produce, stored, values
from tests.unit.broker.isr.stage import EPOCHS, Stage, play
from tests.unit.controller.cluster import Cluster
from tidelog.broker.isr.isr_inputs import isr_changed
from tidelog.config.schema import TopicConfig
from tidelog.model.errors import (
    DamagedBatch,
    DiskFull,
    EndOffsetMoved,
    IdempotencyKeyReused,
    InvalidTimestamp,
    LeaderNotAvailable,
    LogOffline,
    NotEnoughReplicas,
    OffsetOutOfRange,
    OutOfOrderSequence,
    Overloaded,
    ProducerFenced,
    ShuttingDown,
    TimedOutAfterAppend,
    TooLarge,
    UnprocessableBody,
)
from tidelog.model.ids import KEYED_PRODUCER_BIT, ProducerId
from tidelog.replication.isr.events import IsrChanged
from tidelog.storage.disk_files import DiskFile


async def test_a_record_is_committed_at_the_offset_it_was_given(bench: Bench) -> None:
    partition = await bench.topic()
    receipt = await produce(partition, batch(b"a", b"b"))
    assert (receipt.base_offset, receipt.last_offset) == (0, 1)
    assert (receipt.acked_by, receipt.durability, receipt.leader_epoch) == ([1], "fsynced", partition.leader_epoch)
    assert [(record.offset, record.value) for record in stored(partition)] == [(0, b"a"), (1, b"b")]


async def test_no_more_replicas_need_be_in_sync_than_there_are(bench: Bench) -> None:
    """KIP-966's effective minimum. (What is refused with fewer in sync is tried on three brokers.)"""
    partition = await bench.topic(min_insync_replicas="2")
    assert (await produce(partition, batch(b"a"))).acked_by == [1]


def test_too_few_in_sync_are_told_from_no_leader() -> None:
    async def story(stage: Stage) -> None:
        with pytest.raises(NotEnoughReplicas, match="nothing was appended"):
            await produce(stage.lead(isr=(1,), minimum=2), batch(b"a"))

    play(story)


def test_the_only_replica_in_sync_is_the_only_candidate_until_it_asks_for_another() -> None:
    """From then on the controller may have taken that one in, and elect it, before this leader hears of it."""

    async def story(stage: Stage) -> None:
        assert not stage.lead(isr=(1, 2)).is_only_candidate
        assert not stage.lead(isr=(1,), minimum=2).is_only_candidate, "the other one is in the ELR"
        partition = stage.lead(isr=(1,))
        assert partition.is_only_candidate
        stage.fetch(stage.follow())
        async with asyncio.timeout(10):
            while not stage.asked:
                assert partition.is_only_candidate
                await asyncio.sleep(0)
        assert partition.in_sync == (1,) and not partition.is_only_candidate

    play(story)


def test_too_few_racks_in_sync_are_told() -> None:
    async def story(stage: Stage) -> None:
        partition = stage.lead(isr=(1, 2))
        partition.tell(IsrChanged((1, 2), (1, 2), 1, EPOCHS, min_racks=2, racks={1: "a", 2: "a"}))
        assert not partition.is_writable
        with pytest.raises(NotEnoughReplicas, match=r"racks.*min\.insync\.racks.*nothing was appended"):
            await produce(partition, batch(b"a"))
        partition.tell(IsrChanged((1, 2), (1, 2), 2, EPOCHS, min_racks=2, racks={1: "a", 2: "b"}))
        assert partition.is_writable

    play(story)


def test_racks_that_are_asked_for_are_never_more_than_the_replicas_stand_in() -> None:
    cluster = Cluster()
    cluster.start(1, 2, 3, racks={1: "a", 2: "a", 3: "b"})
    cluster.create("t", 1, 3)
    info = cluster.image.topics["t"].partitions[0]
    told = [isr_changed(TopicConfig(min_insync_racks=racks), info, cluster.image) for racks in (1, 2, 3)]
    assert [one.min_racks for one in told] == [1, 2, 2]
    assert told[0].racks == {1: "a", 2: "a", 3: "b"}


async def test_requests_that_wait_share_one_write_and_one_commit(bench: Bench) -> None:
    partition = await bench.topic()
    await produce(partition, batch(b"first"))
    stats = bench.broker.stats
    writes, flushes = stats.append_writes, stats.flushes
    receipts = await asyncio.gather(*(produce(partition, batch(b"%d" % i)) for i in range(50)))
    assert [receipt.base_offset for receipt in receipts] == list(range(1, 51))
    assert stats.append_writes - writes == 1
    assert stats.flushes - flushes == 1


async def test_all_batches_of_a_request_are_contiguous(bench: Bench) -> None:
    partition = await bench.topic()
    one, two = await asyncio.gather(
        produce(partition, batch(b"a") + batch(b"b", b"c")), produce(partition, batch(b"x") + batch(b"y"))
    )
    assert one.batches == [(0, 0), (1, 2)]
    assert two.batches == [(3, 3), (4, 4)]


async def test_nothing_is_visible_before_it_is_durable(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = await bench.topic()
    seen: list[tuple[int, int]] = []
    sync = DiskFile.sync

    def observed(file: DiskFile) -> None:
        seen.append((partition.high_watermark, partition.log_end_offset))
        sync(file)

    monkeypatch.setattr(DiskFile, "sync", observed)
    await produce(partition, batch(b"a"))
    assert seen == [(0, 1), (0, 1)]
    assert partition.high_watermark == 1


@pytest.mark.parametrize(("acks", "durability"), [(1, "leader"), (0, "none")])
async def test_weaker_acks_say_so(bench: Bench, acks: int, durability: str) -> None:
    partition = await bench.topic()
    receipt = await produce(partition, batch(b"a"), acks=acks)
    assert receipt.durability == durability
    await partition.wait_for_data(0, bytes_min=1, deadline_s=asyncio.get_running_loop().time() + 10)
    assert values(partition) == [b"a"]


async def test_replicated_durability_does_not_wait_for_the_disk(bench: Bench) -> None:
    partition = await bench.topic(ack_durability="replicated")
    assert (await produce(partition, batch(b"a"))).durability == "replicated"


async def test_altered_durability_is_in_force_at_once_and_never_overstated(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = await bench.topic(ack_durability="replicated")
    runner = bench.broker.log_writer._runner
    run_all, release = runner.run_all, asyncio.Event()

    async def stalled(calls: Sequence[Callable[[], object]]) -> list[object]:
        await release.wait()
        return await run_all(calls)

    monkeypatch.setattr(runner, "run_all", stalled)
    await produce(partition, batch(b"a", producer_id=7, sequence=0))
    config = partition.config.model_copy(update={"ack_durability": "fsynced"})
    partition.reconfigure(config, partition.log.settings)
    partition.tell(isr_changed(config, bench.broker.image.topics[partition.topic].partitions[0], bench.broker.image))
    assert (await produce(partition, batch(b"a", producer_id=7, sequence=0))).durability == "replicated"
    fresh = asyncio.ensure_future(produce(partition, batch(b"b")))
    await asyncio.sleep(0.01)
    assert not fresh.done(), "acknowledged before the fsync that its topic asks for"
    release.set()
    assert (await fresh).durability == "fsynced"


# -- idempotence ---------------------------------------------------------------------------------------------------


async def test_a_repeated_batch_gets_its_original_offsets_and_is_not_appended(bench: Bench) -> None:
    partition = await bench.topic()
    first = await produce(partition, batch(b"a", b"b", producer_id=7, sequence=0))
    again = await produce(partition, batch(b"a", b"b", producer_id=7, sequence=0))
    assert again.batches == first.batches
    assert values(partition) == [b"a", b"b"]


async def test_a_repeat_that_waits_behind_its_original_is_recognised(bench: Bench) -> None:
    partition = await bench.topic()
    receipts = await asyncio.gather(
        *(produce(partition, batch(b"a", producer_id=7, sequence=0)) for _ in range(4)),
        produce(partition, batch(b"b", producer_id=7, sequence=1)),
    )
    assert [receipt.base_offset for receipt in receipts] == [0, 0, 0, 0, 1]
    assert values(partition) == [b"a", b"b"]


async def test_a_repeat_older_than_five_batches_is_known_but_its_offset_is_not(bench: Bench) -> None:
    partition = await bench.topic()
    for i in range(7):
        await produce(partition, batch(b"%d" % i, producer_id=7, sequence=i))
    assert (await produce(partition, batch(b"0", producer_id=7, sequence=0))).batches == [(None, None)]
    assert len(values(partition)) == 7


async def test_a_repeat_whose_place_is_forgotten_still_waits_for_the_disk(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = await bench.topic()
    runner = bench.broker.log_writer._runner
    run_all, release = runner.run_all, asyncio.Event()

    async def stalled(calls: Sequence[Callable[[], object]]) -> list[object]:
        await release.wait()
        return await run_all(calls)

    monkeypatch.setattr(runner, "run_all", stalled)
    for i in range(7):
        await produce(partition, batch(b"%d" % i, producer_id=7, sequence=i), acks=1)
    repeat = asyncio.ensure_future(produce(partition, batch(b"0", producer_id=7, sequence=0)))
    await asyncio.sleep(0.01)
    assert not repeat.done(), "acknowledged before the original was durable"
    release.set()
    assert (await repeat).batches == [(None, None)]


async def test_gaps_and_old_epochs_are_refused(bench: Bench) -> None:
    partition = await bench.topic()
    await produce(partition, batch(b"a", producer_id=7, epoch=1, sequence=0))
    with pytest.raises(OutOfOrderSequence, match="expected 1"):
        await produce(partition, batch(b"c", producer_id=7, epoch=1, sequence=2))
    with pytest.raises(ProducerFenced):
        await produce(partition, batch(b"b", producer_id=7, epoch=0, sequence=1))
    request = batch(b"b", producer_id=7, epoch=1, sequence=1) + batch(b"d", producer_id=7, epoch=1, sequence=3)
    with pytest.raises(OutOfOrderSequence, match="not consecutive"):
        await produce(partition, request)
    assert values(partition) == [b"a"]


async def test_a_batch_that_expects_an_end_follows_that_end_or_is_refused(bench: Bench) -> None:
    partition = await bench.topic()
    assert (await produce(partition, batch(b"a", b"b"), expected_end=0)).last_offset == 1
    with pytest.raises(EndOffsetMoved, match="ends at offset 2, not at 0"):
        await produce(partition, batch(b"x"), expected_end=0)
    with pytest.raises(LeaderNotAvailable, match="before 3"):
        await produce(partition, batch(b"x"), expected_end=3)
    assert (await produce(partition, batch(b"c"), expected_end=2)).base_offset == 2
    assert values(partition) == [b"a", b"b", b"c"]


async def test_a_repeat_is_answered_whatever_end_it_expects(bench: Bench) -> None:
    partition = await bench.topic()
    first = await produce(partition, batch(b"a", producer_id=7, sequence=0), expected_end=0)
    await produce(partition, batch(b"x"))
    repeat = await produce(partition, batch(b"a", producer_id=7, sequence=0), expected_end=0)
    assert repeat.batches == first.batches
    with pytest.raises(EndOffsetMoved):
        await produce(partition, batch(b"b", producer_id=7, sequence=1), expected_end=1)


async def test_of_all_that_expect_the_same_end_one_gets_it(bench: Bench) -> None:
    """They wait in the mailbox together, among others; no gathering may let two of them in."""
    partition = await bench.topic()
    await produce(partition, batch(b"first"))
    asked = [produce(partition, batch(b"%d" % number), expected_end=1) for number in range(20)]
    outcomes = await asyncio.gather(*asked, produce(partition, batch(b"other")), return_exceptions=True)
    assert [isinstance(outcome, EndOffsetMoved) for outcome in outcomes] == [False, *[True] * 19, False]
    assert values(partition) == [b"first", b"0", b"other"]


async def test_producers_are_remembered_over_a_restart_and_a_roll(bench: Bench) -> None:
    partition = await bench.topic(segment_bytes="1024")
    for i in range(30):
        await produce(partition, batch(b"v" * 100, producer_id=7, sequence=i))
    assert len(partition.log.segments) > 2
    await bench.restart()
    partition = bench.partition()
    assert (await produce(partition, batch(b"v" * 100, producer_id=7, sequence=29))).base_offset == 29
    assert (await produce(partition, batch(b"v" * 100, producer_id=7, sequence=30))).base_offset == 30


async def test_an_idempotency_key_is_a_producer_of_its_own(bench: Bench) -> None:
    partition = await bench.topic()
    key = ProducerId(KEYED_PRODUCER_BIT | 5)

    async def keyed(fingerprint: int, *contents: bytes) -> list[tuple[int | None, int | None]]:
        deadline_s = asyncio.get_running_loop().time() + 10
        batches = [one for content in contents for one in batch(content)]
        receipt = await partition.produce(batches, acks=-1, deadline_s=deadline_s, idempotency=(key, fingerprint))
        return receipt.batches

    first = await keyed(2**31 - 1, b"a", b"b")
    assert await keyed(2**31 - 1, b"a", b"b") == first == [(0, 0), (1, 1)]
    with pytest.raises(IdempotencyKeyReused):
        await keyed(99, b"other")
    with pytest.raises(UnprocessableBody, match="at most 5"):
        await keyed(1, *[b"x"] * 6)


# -- bounds and faults ---------------------------------------------------------------------------------------------


async def test_a_batch_over_the_bound_is_refused_before_it_is_queued(bench: Bench) -> None:
    partition = await bench.topic(max_message_bytes="1000")
    with pytest.raises(TooLarge, match=r"max\.message\.bytes"):
        await produce(partition, batch(b"v" * 1000))
    assert partition.log_end_offset == 0


@pytest.mark.parametrize("skew_ms", [3_700_000, -100_000])
async def test_timestamps_too_far_from_the_clock_are_refused(bench: Bench, skew_ms: int) -> None:
    partition = await bench.topic(message_timestamp_before_max_ms="60000")
    with pytest.raises(InvalidTimestamp):
        await produce(partition, batch(b"v", timestamp_ms=bench.clock.wall_ms() + skew_ms))


async def test_log_append_time_replaces_the_producers_timestamps(bench: Bench) -> None:
    partition = await bench.topic(message_timestamp_type="LogAppendTime")
    receipt = await produce(partition, batch(b"v", timestamp_ms=5))
    assert receipt.log_append_time_ms is not None
    assert [record.timestamp_ms for record in stored(partition)] == [receipt.log_append_time_ms]


async def test_a_full_mailbox_refuses_and_loses_nothing(bench: Bench) -> None:
    partition = await bench.topic()
    requests = [asyncio.ensure_future(produce(partition, batch(b"%d" % i))) for i in range(1_100)]
    results = await asyncio.gather(*requests, return_exceptions=True)
    refused = [result for result in results if isinstance(result, Overloaded)]
    assert len(refused) == 100
    assert len(values(partition)) == 1_000


async def test_a_deadline_before_the_append_is_definite_and_after_it_is_not(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = await bench.topic()
    loop = asyncio.get_running_loop()
    with pytest.raises(Overloaded, match="not appended"):
        await partition.produce(batch(b"late"), acks=-1, deadline_s=loop.time() - 1)
    release = asyncio.Event()
    wait = bench.broker.log_writer._runner.run_all

    async def slow(calls: Sequence[Callable[[], object]]) -> list[object]:
        await release.wait()
        return await wait(calls)

    monkeypatch.setattr(bench.broker.log_writer._runner, "run_all", slow)
    with pytest.raises(TimedOutAfterAppend):
        await partition.produce(batch(b"kept"), acks=-1, deadline_s=loop.time() + 0.05)
    release.set()
    await bench.broker.log_writer.drain()
    assert values(partition) == [b"kept"]


async def test_a_client_that_gave_up_before_the_append_appends_nothing(bench: Bench) -> None:
    partition = await bench.topic()
    request = asyncio.ensure_future(produce(partition, batch(b"gone")))
    await asyncio.sleep(0)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    await produce(partition, batch(b"next"))
    assert values(partition) == [b"next"]


async def test_a_full_disk_refuses_definitely_and_resumes_by_itself(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = await bench.topic()
    await produce(partition, batch(b"a"))
    write = DiskFile.pwritev

    def full(file: DiskFile, buffers: list[bytes], position: int) -> None:
        write(file, [bytes(buffers[0])[:40]], position)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(DiskFile, "pwritev", full)
        with pytest.raises(DiskFull):
            await produce(partition, batch(b"b"))
    assert (await produce(partition, batch(b"c"))).base_offset == 1
    await bench.restart()
    assert values(bench.partition()) == [b"a", b"c"]


async def test_a_failed_fsync_is_final_and_indefinite(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = await bench.topic()
    await produce(partition, batch(b"a"))
    calls: list[DiskFile] = []

    def failing(file: DiskFile) -> None:
        calls.append(file)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(DiskFile, "sync", failing)
    with pytest.raises(TimedOutAfterAppend, match="fsync failed"):
        await produce(partition, batch(b"b"))
    with pytest.raises(LogOffline):
        await produce(partition, batch(b"c"))
    assert len(calls) == len(set(calls)), "an fsync that failed was tried again"
    assert values(partition) == [b"a"], "what is not durable was shown"


async def test_damage_is_answered_for_that_batch_alone(bench: Bench, tmp_path: Path) -> None:
    partition = await bench.topic()
    for i in range(5):
        await produce(partition, batch(b"record %d" % i))
    path = tmp_path / "data" / partition.log.active.log_path
    data = bytearray(path.read_bytes())
    data[data.index(b"record 2")] ^= 0xFF
    path.write_bytes(data)
    assert (await partition.read(0, bytes_max=1 << 20)).next_offset == 2
    with pytest.raises(DamagedBatch, match="offsets 2 to 2"):
        await partition.read(2, bytes_max=1 << 20)
    assert (await partition.read(3, bytes_max=1 << 20)).next_offset == 5
    assert bench.broker.stats.damaged_reads == 1


async def test_a_stopping_partition_answers_everybody(bench: Bench) -> None:
    partition = await bench.topic()
    waiting = asyncio.ensure_future(
        partition.wait_for_data(0, bytes_min=1, deadline_s=asyncio.get_running_loop().time() + 60)
    )
    queued = asyncio.ensure_future(produce(partition, batch(b"queued")))
    await asyncio.sleep(0)
    partition.close()
    await waiting
    with pytest.raises(ShuttingDown):
        await queued
    with pytest.raises(ShuttingDown):
        await produce(partition, batch(b"late"))


async def test_a_deposed_leader_does_not_say_that_its_broker_stops(bench: Bench) -> None:
    partition = await bench.topic()
    queued = asyncio.ensure_future(produce(partition, batch(b"queued")))
    await asyncio.sleep(0)
    partition.close(is_deposed=True)
    partition.close()
    for refused in (queued, produce(partition, batch(b"late"))):
        with pytest.raises(LeaderNotAvailable, match="is changing; nothing was appended"):
            await refused


# -- reading -------------------------------------------------------------------------------------------------------


async def test_out_of_range_names_the_range(bench: Bench) -> None:
    partition = await bench.topic()
    await produce(partition, batch(b"a", b"b"))
    assert (await partition.read(2, bytes_max=1)).data == b""
    with pytest.raises(OffsetOutOfRange, match="0 to 2") as caught:
        await partition.read(3, bytes_max=1)
    assert (caught.value.high_watermark, caught.value.leader_epoch) == (2, partition.leader_epoch)


async def test_a_long_poll_ends_when_enough_bytes_are_committed(bench: Bench) -> None:
    partition = await bench.topic()
    deadline_s = asyncio.get_running_loop().time() + 30
    poll = asyncio.ensure_future(partition.wait_for_data(0, bytes_min=300, deadline_s=deadline_s))
    await produce(partition, batch(b"v" * 100))
    await asyncio.sleep(0)
    assert not poll.done()
    await produce(partition, batch(b"v" * 200))
    await poll
    assert asyncio.get_running_loop().time() < deadline_s, "the deadline ended it, not the data"
    assert bench.broker.purgatory.waiting == 0


async def test_a_long_poll_ends_at_its_deadline(bench: Bench) -> None:
    partition = await bench.topic()
    await partition.wait_for_data(0, bytes_min=1, deadline_s=asyncio.get_running_loop().time() + 0.01)
    assert partition.high_watermark == 0
    assert bench.broker.purgatory.waiting == 0


async def test_offsets_by_timestamp(bench: Bench) -> None:
    partition = await bench.topic()
    for timestamp_ms in (1000, 3000, 2000):
        await produce(partition, batch(b"v", timestamp_ms=timestamp_ms))
    assert await partition.offset_for_timestamp(0) == (0, 1000)
    assert await partition.offset_for_timestamp(1001) == (1, 3000)
    assert await partition.offset_for_timestamp(3001) is None


# -- retention -----------------------------------------------------------------------------------------------------


async def test_retention_by_size_lets_whole_segments_go(bench: Bench) -> None:
    partition = await bench.topic(segment_bytes="1024", retention_bytes="2048")
    for _ in range(40):
        await produce(partition, batch(b"v" * 200))
    partition.apply_retention(bench.clock.wall_ms())
    await bench.broker.log_writer.drain()
    assert 0 < partition.log_start_offset < 40
    assert 2048 <= partition.log.log_bytes < 2048 + 2 * 1400
    with pytest.raises(OffsetOutOfRange):
        await partition.read(0, bytes_max=1)
    start = partition.log_start_offset
    await bench.restart()
    assert bench.partition().log_start_offset == start


async def test_retention_by_age_can_empty_the_log_but_never_reuses_offsets(bench: Bench) -> None:
    partition = await bench.topic(retention_ms="1000")
    await produce(partition, batch(b"old"))
    partition.apply_retention(bench.clock.wall_ms() + 5_000)
    await bench.broker.log_writer.drain()
    assert (partition.log_start_offset, partition.high_watermark) == (1, 1)
    assert (await produce(partition, batch(b"new"))).base_offset == 1
    await bench.restart()
    assert values(bench.partition()) == [b"new"]


async def test_an_empty_cleanup_policy_keeps_everything(bench: Bench) -> None:
    partition = await bench.topic(retention_ms="1000", cleanup_policy="")
    await produce(partition, batch(b"old"))
    partition.apply_retention(bench.clock.wall_ms() + 5_000)
    assert values(partition) == [b"old"]
