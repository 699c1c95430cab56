"""The background scrubber reads everything once in half a period, evenly, not too fast, and after those who wait."""

from __future__ import annotations

import asyncio
from functools import partial

from tests.unit.broker.isr.stage import PARTITION, until
from tests.unit.broker.repair.stage import RepairStage, play
from tidelog.broker.repair.copies import Holder
from tidelog.broker.repair.scrub_targets import PIECE_BYTES, LogTarget, Means
from tidelog.broker.repair.scrubbing import BackgroundScrubber
from tidelog.config.schema import BrokerConfig
from tidelog.model.ids import PartitionId

PERIOD_S = 100.0
LARGE = b"x" * (PIECE_BYTES // 2)


def begin(stage: RepairStage, holders: dict[PartitionId, Holder], **settings: int) -> BackgroundScrubber:
    """On broker 1."""
    config = BrokerConfig.model_validate({"log.scrub.period.ms": int(PERIOD_S * 1000), **settings})
    means = Means(stage.site.writer, stage.site.stats)
    scrubber = BackgroundScrubber(
        lambda: {str(known): LogTarget(partial(holders.get, known), means) for known in holders},
        stage.site.writer,
        config,
        stage.site.stats,
    )
    stage.spawn(scrubber.run())
    return scrubber


def test_what_nobody_reads_is_found_within_a_period_and_repaired() -> None:
    async def story(stage: RepairStage) -> None:
        stage.write(*[LARGE] * 20)
        before = stage.site.content()
        stage.site.log.damage.on_change = lambda: stage.repairer.noticed(PARTITION)
        begin(stage, {PARTITION: stage.replica(1)})
        for offset in (0, 19, 7):
            begun_s = stage.site.clock.monotonic_s()
            stage.harm(offset, 1)
            repaired = stage.site.stats.repaired_batches
            async with asyncio.timeout(PERIOD_S):
                while stage.site.stats.repaired_batches == repaired:
                    await asyncio.sleep(0.5)
            assert stage.site.clock.monotonic_s() - begun_s <= PERIOD_S
        assert stage.site.content() == before

    play(story)


def test_the_reading_is_spread_over_half_a_period() -> None:
    async def story(stage: RepairStage) -> None:
        stage.write(*[LARGE] * 20)
        scrubber = begin(stage, {PARTITION: stage.replica(1)})
        total = stage.site.log.log_bytes
        await asyncio.sleep(PERIOD_S / 4)
        assert 0.3 < stage.site.stats.scrubbed_bytes / total < 0.7
        await asyncio.sleep(PERIOD_S / 4 + 5)
        assert 0.9 < stage.site.stats.scrubbed_bytes / total < 1.4
        assert stage.site.stats.scrubbed_logs == 1
        assert scrubber.oldest_s() < PERIOD_S / 2

    play(story)


def test_it_never_reads_faster_than_it_may() -> None:
    async def story(stage: RepairStage) -> None:
        stage.write(*[LARGE] * 20)
        settings = {"log.scrub.period.ms": 1, "log.scrub.io.max.bytes.per.second": PIECE_BYTES}
        begin(stage, {PARTITION: stage.replica(1)}, **settings)
        await asyncio.sleep(8)
        assert 5 * PIECE_BYTES < stage.site.stats.scrubbed_bytes < 10 * PIECE_BYTES

    play(story)


def test_files_without_anything_to_read_are_no_reason_to_hurry() -> None:
    """All records are deleted, and their segment is still there."""

    async def story(stage: RepairStage) -> None:
        stage.write(*[LARGE] * 4)
        log = stage.site.log
        log.delete_records(log.log_end_offset)
        assert log.log_bytes > 0
        begin(stage, {PARTITION: stage.replica(1)})
        await asyncio.sleep(PERIOD_S)
        assert stage.site.stats.scrubbed_logs <= PERIOD_S
        assert stage.site.stats.scrubbed_bytes == 0

    play(story)


def test_a_log_that_goes_and_logs_that_come_are_none_of_its_trouble() -> None:
    async def story(stage: RepairStage) -> None:
        stage.write(*[LARGE] * 4)
        holders: dict[PartitionId, Holder] = {}
        scrubber = begin(stage, holders)
        await asyncio.sleep(PERIOD_S)
        assert scrubber.oldest_s() == 0.0
        holders[PARTITION] = stage.replica(1)
        await until(lambda: stage.site.stats.scrubbed_bytes > 0)
        del holders[PARTITION]
        await asyncio.sleep(PERIOD_S)
        holders[PARTITION] = stage.replica(1)
        await asyncio.sleep(PERIOD_S)
        assert stage.site.stats.scrubbed_logs >= 1

    play(story)
