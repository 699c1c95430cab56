"""A partition with one replica, killed: nobody else can say what a bad end of its journal held, but its log can."""

from __future__ import annotations

import pytest

from tests.unit.broker.isr.stage import until
from tests.unit.broker.paxos.site import Site
from tests.unit.broker.paxos.stage import Stage, play
from tests.unit.broker.paxos.test_lost_values import read_all
from tidelog.broker.partitions.proposals import ProduceReceipt
from tidelog.model.ports import Files
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.rows import ROW_BYTES, Kind, Row

RECORDS = 10

Extent = tuple[str, int, int]
"""Path, position, size."""


def extents_of(log: PartitionLog) -> list[Extent]:
    """Returns where the batches of a log lie."""
    return [
        (segment.log_path, row.file_position, row.length)
        for segment in log.segments
        for row in segment.entries(log.log_start_offset)
        if isinstance(row, Row) and row.kind == Kind.BATCH
    ]


def flip(files: Files, extent: Extent, share: float) -> None:
    path, position, size = extent
    file = files.open(path)
    at = position + min(int(share * size), size - 1)
    (byte,) = file.pread(1, at)
    file.pwritev([bytes([byte ^ 0x10])], at)
    file.sync()
    file.close()


def shorten(files: Files, path: str, size: int) -> None:
    """Takes so much off the end of a file."""
    file = files.open(path)
    file.truncate(file.size() - size)
    file.sync()
    file.close()


def lose_rows(files: Files, last: Extent, count: int) -> None:
    """Takes the last rows of a log, as a power cut can, and leaves their batches."""
    shorten(files, last[0].replace(".log", ".catalog"), count * ROW_BYTES)


async def write(stage: Stage) -> tuple[Site, list[Extent], list[Extent], bytes]:
    """Returns the replica, killed, with what its journal and its log hold."""
    await stage.lead(1)
    for number in range(RECORDS):
        assert isinstance(await stage.produce(1, b"v%d" % number), ProduceReceipt)
    (site,) = stage.sites.values()
    await until(lambda: site.replica.log.log_end_offset == RECORDS)
    written = site.content()
    journal, log = extents_of(site.replica._files.store.journal), extents_of(site.replica.log)
    await site.crash(is_power_lost=False)
    return site, journal, log, written


async def goes_on(stage: Stage, site: Site) -> None:
    """The replica leads, under its old id, and takes writes."""
    engine_id = site.engine_id
    await site.boot()
    await stage.lead(1)
    assert site.engine_id == engine_id and site.replica.is_voting
    assert isinstance(await stage.produce(1, b"more"), ProduceReceipt)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("back", [1, 2, 3, 4])
def test_the_end_of_the_journal_is_made_again_from_the_log(back: int, count: int, share: float) -> None:
    async def story(stage: Stage) -> None:
        site, journal, _, written = await write(stage)
        end = len(journal) - back + 1
        for extent in journal[end - count : end]:
            flip(site.disk, extent, share)
        await goes_on(stage, site)
        assert site.content().startswith(written)
        assert site.replica.engine.node.replica.faulty() == []

    play(story, replicas=1)


@pytest.mark.parametrize("share", [0.3, 1.0])
@pytest.mark.parametrize("back", [1, 2])
def test_what_the_log_has_not_either_is_lost_by_name(back: int, share: float) -> None:
    """The rows of log and journal say that the batch was there, so it is damaged, not torn."""

    async def story(stage: Stage) -> None:
        site, journal, log, written = await write(stage)
        for extent in (*journal[-back:], log[-1]):
            flip(site.disk, extent, share)
        await goes_on(stage, site)
        shown, damaged = read_all(site)
        assert damaged == [RECORDS - 1]
        assert shown.startswith(written[: -log[-1][2]]) and b"more" in shown

    play(story, replicas=1)


@pytest.mark.parametrize("batch", range(RECORDS - 1))
def test_a_log_keeps_what_lies_behind_a_batch_that_its_journal_has(batch: int) -> None:
    """The journal has lost the last entry, and the log an earlier batch: each has what the other lacks."""

    async def story(stage: Stage) -> None:
        site, journal, log, written = await write(stage)
        flip(site.disk, journal[-1], 0.7)
        flip(site.disk, log[batch], 0.7)
        await goes_on(stage, site)
        await until(site.is_sound)
        assert site.content().startswith(written)

    play(story, replicas=1)


@pytest.mark.parametrize("share", [0.3, 1.0])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("rows", [1, 3, RECORDS])
def test_batches_that_lost_their_rows_vouch_for_the_end_of_the_journal(rows: int, count: int, share: float) -> None:
    """A power cut takes rows of the log and leaves their batches; then the end of the journal rots."""

    async def story(stage: Stage) -> None:
        site, journal, log, written = await write(stage)
        lose_rows(site.disk, log[-1], rows)
        for extent in journal[-count:]:
            flip(site.disk, extent, share)
        await goes_on(stage, site)
        await until(lambda: b"more" in site.content())
        assert site.content().startswith(written)
        assert site.replica.engine.node.replica.faulty() == []

    play(story, replicas=1)


@pytest.mark.parametrize("rows", [2, RECORDS])
def test_behind_batches_that_lost_their_rows_a_bad_end_of_the_journal_is_torn(rows: int) -> None:
    """The last value never came to the log."""

    async def story(stage: Stage) -> None:
        site, journal, log, written = await write(stage)
        lose_rows(site.disk, log[-1], rows)
        shorten(site.disk, log[-1][0], log[-1][2])
        flip(site.disk, journal[-1], 0.7)
        await goes_on(stage, site)
        await until(lambda: b"more" in site.content())
        assert site.content().startswith(written[: -log[-1][2]])
        assert [offset for offset, *_ in site.rows()] == list(range(RECORDS))

    play(story, replicas=1)
