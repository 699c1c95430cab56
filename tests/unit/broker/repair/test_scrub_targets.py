"""The scrubber goes one round over each kind of file: a byte that has turned over is found, told, and mended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import pytest

from tests.unit.broker.isr.stage import until
from tests.unit.broker.paxos.site import Site
from tests.unit.broker.paxos.stage import Stage, play
from tests.unit.broker.repair import stage as isr
from tidelog.broker.consensus.messages import DescribeSnapshots, FetchSnapshot
from tidelog.broker.metadata.snapshot_scrub import SnapshotTarget
from tidelog.broker.metadata.snapshots import SnapshotKeeper
from tidelog.broker.partitions.proposals import ProduceReceipt
from tidelog.broker.repair.scrub_targets import (
    CopiesTarget,
    JournalTarget,
    LogTarget,
    Means,
    Target,
    journal_metainfo_target,
    metainfo_target,
)
from tidelog.broker.runtime.log_writer import LogWriter
from tidelog.broker.runtime.stats import Stats
from tidelog.model.ports import Files
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.environment import SimClock, SimEntropy, SimRunner
from tidelog.sim.kit.loop import run
from tidelog.sim.kit.seeds import stream
from tidelog.storage.directory_identity import IDENTITY_NAMES, DirectoryIdentity, DirectoryIdentityStore
from tidelog.storage.metainfo import NAMES
from tidelog.storage.rows import ROW_BYTES, Kind, Row
from tidelog.storage.segment import Segment
from tidelog.storage.snapshot_format import BLOCK_BYTES, CHUNK_BYTES
from tidelog.storage.snapshots import BODY, HEADERS, SnapshotStore
from tidelog.transport.peer import Answer


def flip(files: Files, path: str, position: int) -> None:
    """A byte turns over, durably."""
    file = files.open(path)
    (byte,) = file.pread(1, position)
    file.pwritev([bytes([byte ^ 0x10])], position)
    file.sync()
    file.close()


def content(files: Files, path: str) -> bytes:
    file = files.open(path)
    try:
        return bytes(file.pread(file.size(), 0))
    finally:
        file.close()


async def scrub(target: Target) -> int:
    """Goes one round; returns the bytes that were read."""
    total, has_finished = 0, False
    while not has_finished:
        size, has_finished, *_ = await target.step()
        total += size
    return total


# -- journals ----------------------------------------------------------------------------------------------------------


def journal_of(site: Site) -> tuple[JournalTarget, Means]:
    means = Means(site.replica._shared.log_writer, site.stats)
    return JournalTarget("j", site.replica.engine, lambda: True, means), means


async def write(stage: Stage, node: int, count: int) -> None:
    for number in range(count):
        assert isinstance(await stage.produce(node, b"v%d" % number), ProduceReceipt)


def in_one_life(story: Callable[[Stage, Site, JournalTarget], Awaitable[None]]) -> None:
    """Plays a story of three replicas that have written ten records, about the third one's journal."""

    async def whole(stage: Stage) -> None:
        await stage.lead(1)
        await write(stage, 1, 10)
        await stage.quiet()
        await asyncio.sleep(2)
        third = stage.sites[3]
        target, _ = journal_of(third)
        assert await third.run(scrub(target)) > 0
        assert third.stats.damaged_batches == 0
        await story(stage, third, target)

    play(whole)


def test_a_damaged_payload_of_a_journal_comes_from_the_own_log() -> None:
    async def story(stage: Stage, third: Site, target: JournalTarget) -> None:
        stage.cut = {(3, 1), (3, 2)}
        slot = third.replica.engine.node.replica.slots[5]
        assert third.harm_journal(5)
        await third.run(scrub(target))
        assert third.stats.damaged_journal_entries == third.stats.damaged_batches == 1
        assert third.stats.repaired_batches == 1
        assert not third.replica.engine.node.replica.slots[5].faulty
        store = third.replica._files.store
        assert store.payload(5, slot.value.digest), "it is on the disk once more"
        assert third.replica.engine.node.replica.slots[5] == slot
        await third.run(scrub(target))
        assert third.stats.damaged_batches == 1, "what nobody needs any more is no damage"
        assert not store.journal.damage

    in_one_life(story)


def test_a_damaged_payload_that_is_not_in_the_own_log_comes_from_another_replica() -> None:
    async def story(stage: Stage, third: Site, target: JournalTarget) -> None:
        assert third.harm_journal(5)
        third.harm_log(third.replica.engine.node.replica.slots[5].value.base_offset)
        third.replica._disk.applied_copy = lambda value: None  # type: ignore[method-assign]  # the log has it no more
        await third.run(scrub(target))
        assert third.stats.damaged_journal_entries == 1
        assert third.stats.repaired_batches >= 1
        assert third.replica.engine.node.replica.faulty() == []
        assert not third.replica._files.store.is_faulty(5)

    in_one_life(story)


def test_a_damaged_head_of_a_journal_is_written_anew() -> None:
    """After a start, nobody would know which value it was, or that it is chosen."""

    async def story(stage: Stage, third: Site, target: JournalTarget) -> None:
        store = third.replica._files.store
        entry = store._entries.index.slots[5]
        assert entry.payload is not None and entry.payload.offset != entry.offset, "it only refers to its payload"
        segment, row = next(store.journal.parts(entry.offset)), next(store.journal.entries(entry.offset))
        assert isinstance(segment, Segment)
        flip(third.disk, segment.log_path, row.file_position + row.length - 2)  # type: ignore[union-attr]  # a row
        await third.run(scrub(target))
        assert third.stats.damaged_journal_entries == third.stats.repaired_batches == 1
        before = third.replica.engine.node.replica.slots[5]
        await asyncio.sleep(1)
        await third.crash()
        stage.cut = {(3, 1), (3, 2)}
        await third.boot()
        assert third.replica.engine.node.replica.slots[5] == before

    in_one_life(story)


def _is_entry(row: Row | None) -> bool:
    return row is not None and row.kind == Kind.BATCH


def test_a_damaged_row_of_a_journal_is_made_again_from_its_batch() -> None:
    async def story(stage: Stage, third: Site, target: JournalTarget) -> None:
        active = third.replica._files.store.journal.active
        before = content(third.disk, active.catalog_path)
        entries = [slot for slot in range(active.body_slot, active.slots) if _is_entry(active.row(slot))]
        flip(third.disk, active.catalog_path, ROW_BYTES * entries[3] + 40)
        await third.run(scrub(target))
        after = content(third.disk, active.catalog_path)
        row = slice(ROW_BYTES * entries[3], ROW_BYTES * (entries[3] + 1))
        assert after[row][24:40] == before[row][24:40], "position and number"
        assert _is_entry(active.row(entries[3]))

    in_one_life(story)


def test_an_entry_of_a_journal_that_has_lost_its_row_as_well_goes_with_its_segment() -> None:
    """Else the next start would find that something is lost, and not what."""

    async def story(stage: Stage, third: Site, target: JournalTarget) -> None:
        store, replica = third.replica._files.store, third.replica.engine.node.replica
        entry = store._entries.index.slots[5]
        assert entry.payload is not None
        segment, row = (
            next(store.journal.parts(entry.payload.offset)),
            next(store.journal.entries(entry.payload.offset)),
        )
        assert isinstance(segment, Segment) and isinstance(row, Row)
        before = dict(replica.slots)
        flip(third.disk, segment.log_path, row.file_position + row.length - 2)
        rows = {number: segment.row(number) for number in range(segment.body_slot, segment.slots)}
        (slot,) = (number for number, known in rows.items() if known == row)
        flip(third.disk, segment.catalog_path, ROW_BYTES * slot + 40)
        await third.run(scrub(target))
        assert not store.journal.damaged_ranges() and store.journal.log_start_offset >= segment.end_offset
        assert replica.slots == before
        await write(stage, 1, 3)
        await stage.quiet()
        await asyncio.sleep(2)
        values = {at: one.value for at, one in third.replica.engine.node.replica.slots.items()}
        await third.crash()
        stage.cut = {(3, 1), (3, 2)}
        await third.boot()
        assert not third.replica._files.stored.is_amnesiac
        after = third.replica.engine.node.replica.slots
        assert {at: one.value for at, one in after.items()} == values
        assert third.replica.engine.node.replica.faulty() == []

    in_one_life(story)


@pytest.mark.parametrize("bad", [(0,), (1,), (0, 1)])
def test_metainfo_beside_a_journal_is_mended_from_the_other_copy_or_from_memory(bad: Sequence[int]) -> None:
    async def story(stage: Stage, third: Site, target: JournalTarget) -> None:
        directory = third.replica._files.store.journal.directory
        metainfo = journal_metainfo_target("j", third.replica.engine, lambda: True, journal_of(third)[1])
        for number in bad:
            flip(third.disk, f"{directory}/{NAMES[number]}", 30)
        await third.run(scrub(metainfo))
        assert third.stats.damaged_copies == third.stats.repaired_batches == len(bad)
        await third.run(scrub(metainfo))
        assert third.stats.damaged_copies == len(bad)
        before = third.replica.engine.node.replica.metadata
        await third.crash()
        await third.boot()
        assert third.replica._files.metainfo.metadata.promised == before.promised
        assert not third.replica._files.stored.is_amnesiac

    in_one_life(story)


# -- logs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_truncated", [False, True])
def test_a_damaged_checkpoint_is_replaced_by_the_next_segments_but_not_under_a_truncation(
    *, is_truncated: bool
) -> None:
    async def story(stage: isr.RepairStage) -> None:
        stage.write(b"a", b"b")
        log, replica = stage.site.log, stage.replica(1)
        log.roll(0)
        stage.write(b"c")
        damaged = log.active
        flip(log.files.opened.files, damaged.catalog_path, ROW_BYTES + 30)
        replica.is_readable = not is_truncated
        await scrub(LogTarget(lambda: replica, Means(stage.site.writer, stage.site.stats)))
        assert (log.active is damaged) == damaged.has_lost_checkpoint == is_truncated
        assert not is_truncated or not log.is_dirty
        await until(lambda: not log.is_dirty)

    isr.play(story)


# -- facts in two copies -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [(), (0,), (1,), (0, 1)])
def test_metainfo_is_mended(bad: Sequence[int]) -> None:
    async def story(stage: isr.RepairStage) -> None:
        stage.write(b"a", b"b")
        log, stats = stage.site.log, stage.site.stats
        files = log.files.opened.files
        log.store_metainfo(log.metainfo(1))
        for number in bad:
            flip(files, f"{log.directory}/{NAMES[number]}", 30)
        target = metainfo_target("t-0", lambda: stage.replica(1), Means(stage.site.writer, stats))
        assert await scrub(target) > 0
        assert stats.damaged_batches == stats.damaged_copies == stats.repaired_batches == len(bad)
        found = log.files.metainfo.load()
        assert found is not None and found.bad_copies == 0
        assert found.info.incarnation == log.incarnation

    isr.play(story)


@pytest.mark.parametrize("bad", [(0,), (1,), (0, 1)])
def test_the_identity_of_a_directory_is_mended(bad: Sequence[int]) -> None:
    async def story(stage: isr.RepairStage) -> None:
        files = stage.site.log.files.opened.files
        store = DirectoryIdentityStore(files)
        store.store(DirectoryIdentity(cluster_id="c", node_id=1, storage="s"))
        store.change(held_position=7)
        for number in bad:
            flip(files, IDENTITY_NAMES[number], 30)
        stats = stage.site.stats
        await scrub(CopiesTarget("identity", store.mend, stage.site.writer.perform, stats))
        assert stats.damaged_copies == len(bad)
        for number in (0, 1):
            assert b'"held_position":7' in content(files, IDENTITY_NAMES[number])

    isr.play(story)


def test_an_older_copy_never_replaces_a_newer_one() -> None:
    """A write that failed half-way has left two good copies of different age."""

    async def story(stage: isr.RepairStage) -> None:
        files = stage.site.log.files.opened.files
        store = DirectoryIdentityStore(files)
        store.store(DirectoryIdentity(cluster_id="c", node_id=1, storage="old"))
        old = content(files, IDENTITY_NAMES[0])
        store.change(storage="new")
        file = files.open(IDENTITY_NAMES[0])
        file.pwritev([old], 0)
        file.sync()
        file.close()
        assert store.mend() == 0
        assert content(files, IDENTITY_NAMES[0]) == content(files, IDENTITY_NAMES[1]) != old

    isr.play(story)


# -- snapshots ---------------------------------------------------------------------------------------------------------

BODY_BYTES = bytes(range(256)) * 1200
POSITION = 12


class Snapshots:
    """Two brokers' snapshots of the same position."""

    def __init__(self) -> None:
        self.disks = [SimDisk(f"snapshots {node}") for node in (1, 2)]
        self.stores = [SnapshotStore(disk, "snapshots") for disk in self.disks]
        for store in self.stores:
            store.write(POSITION, b"voters", BODY_BYTES)
        self.stats = Stats()
        self.writer = LogWriter(SimRunner(stream("s")), SimClock(asyncio.get_running_loop()), self.stats)
        self.keepers = [SnapshotKeeper(store, self.writer.perform, SimEntropy(stream("e"))) for store in self.stores]
        self.nodes = [2]
        self.target = SnapshotTarget(
            self.stores[0], self.keepers[0], lambda: self.nodes, self.ask, Means(self.writer, self.stats)
        )

    async def ask(self, node_id: int, message: msgspec.Struct, *, deadline_s: float) -> Answer:
        assert node_id == 2 and isinstance(message, DescribeSnapshots | FetchSnapshot)
        answer = self.keepers[1].answer(message)
        return Answer(answer.message, (b"".join(bytes(part) for part in answer.payload),))

    def flip(self, suffix: str, position: int) -> None:
        flip(self.disks[0], f"snapshots/{POSITION:020}-0001{suffix}", position)

    def files(self, number: int) -> dict[str, bytes]:
        return {name: content(self.disks[number], f"snapshots/{name}") for name in self.disks[number].list("snapshots")}


def of_snapshots(story: Callable[[Snapshots], Awaitable[Any]]) -> None:
    async def main() -> None:
        await story(Snapshots())

    run(main)


@pytest.mark.parametrize("suffix", HEADERS)
def test_a_header_of_a_snapshot_is_mended_from_the_other(suffix: str) -> None:
    async def story(snapshots: Snapshots) -> None:
        snapshots.nodes = []
        snapshots.flip(suffix, 40)
        assert await scrub(snapshots.target) >= len(BODY_BYTES)
        assert snapshots.files(0) == snapshots.files(1)
        assert snapshots.stats.damaged_copies == snapshots.stats.repaired_batches == 1

    of_snapshots(story)


@pytest.mark.parametrize("index", [0, 1, len(BODY_BYTES) // CHUNK_BYTES])
def test_a_block_of_a_snapshot_comes_from_another_broker(index: int) -> None:
    async def story(snapshots: Snapshots) -> None:
        snapshots.flip(BODY, index * BLOCK_BYTES + 100)
        await scrub(snapshots.target)
        assert snapshots.stats.damaged_snapshot_blocks == snapshots.stats.repaired_batches == 1
        assert snapshots.files(0) == snapshots.files(1)

    of_snapshots(story)


def test_a_block_that_nobody_can_give_now_is_asked_for_again() -> None:
    async def story(snapshots: Snapshots) -> None:
        snapshots.nodes = []
        snapshots.flip(BODY, 100)
        await scrub(snapshots.target)
        assert snapshots.stats.repaired_batches == 0
        snapshots.nodes = [2]
        await scrub(snapshots.target)
        assert snapshots.stats.repaired_batches == 1
        assert snapshots.files(0) == snapshots.files(1)

    of_snapshots(story)


def test_a_snapshot_without_headers_is_fetched_anew() -> None:
    async def story(snapshots: Snapshots) -> None:
        for suffix in HEADERS:
            snapshots.flip(suffix, 40)
        await scrub(snapshots.target)
        found = snapshots.stores[0].load_newest().snapshot
        assert found is not None and found.body == BODY_BYTES
        assert snapshots.stats.damaged_copies == 2

    of_snapshots(story)
