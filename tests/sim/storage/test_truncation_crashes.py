"""A follower's log at every crash of a truncation, and of what is written after it.

With truncation by leader epochs in two rounds (KIP-279), a follower drops batches of epoch 4 and takes the leader's of
epoch 3 in their place. Whatever a power cut leaves, the log is then a piece of one branch or of the other, never of
both, and nothing in it looks damaged. Batches of both branches have the same size, and the disk may show old blocks in
place of lost ones, so that leftovers fit as well as they ever can.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from functools import cache

import pytest

from tests import series
from tests.every_crash import enumerate_crashes
from tidelog.model.batch_codec import encode_batch
from tidelog.model.batch_header import assign_offsets, iter_batches, parse_header, split_batches
from tidelog.model.errors import DamagedBatch, DiskFull, LogOffline, Overloaded, TidelogError
from tidelog.model.ids import PartitionId, TopicId
from tidelog.model.records import Record
from tidelog.sim.kit.choices import CrashChoices
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.faults import NO_FAULTS, Crashed, FaultRates
from tidelog.sim.kit.medium import CAPACITY_BYTES
from tidelog.sim.kit.seeds import stream
from tidelog.storage.loader import load_log
from tidelog.storage.open_files import OpenFiles
from tidelog.storage.partition_log import LogSettings, PartitionLog
from tidelog.storage.scan import BadEnd

IDENTITY = PartitionId(TopicId("cd" * 16), 1)
BATCH_BYTES = 512


@cache
def fill(value: int) -> bytes:
    """A batch of exactly one sector, unlike any other."""
    for size in range(400, 460):
        data = encode_batch([Record(1, None, (b"%d" % value).ljust(size, b"."))])
        if len(data) == BATCH_BYTES:
            return bytes(data)
    raise AssertionError("no such batch")


class Follower:
    """A follower of one log, and what that may hold: a piece of `branch` with at least `least` batches. What is behind
    these may be damaged, if the log has others to ask, and is of the branch nevertheless."""

    bad_end = BadEnd.KEEP

    def __init__(self, disk: SimDisk, segment_bytes: int) -> None:
        self.disk = disk
        self.settings = LogSettings(segment_bytes=segment_bytes, segment_ms=1 << 40)
        self.start = 0
        self.branch: list[bytes] = []
        self.least = 0
        self.damaged: set[int] = set()
        """Offsets that were damaged when they were shown first."""
        self.restart: int | None = None
        """Where the log may begin instead, empty."""
        self.values = 0
        self.open()

    log: PartitionLog

    def open(self) -> None:
        self.log, self.report = load_log(
            OpenFiles(self.disk, 64), "log", IDENTITY, self.settings,
            new_incarnation="i", now_ms=0, bad_end=self.bad_end,
        )  # fmt: skip

    def append(self, epoch: int, count: int = 1) -> None:
        for _ in range(count):
            self.values += 1
            (batch,) = split_batches(fill(self.values), batch_bytes_max=1 << 20)
            placed = assign_offsets(batch, self.log.log_end_offset, epoch)
            self.branch.append(bytes(placed.data))
            try:
                self.log.append([placed], 0)
            except (DiskFull, LogOffline, Overloaded):
                self.branch.pop()
                raise

    def flush(self) -> None:
        if self.log.is_dirty:
            self.log.flush()
        if self.log.offline_reason is None:
            self.least = len(self.branch)

    def truncate(self, offset: int) -> None:
        kept = offset - self.start
        if self.log.offline_reason is None:
            self.least = min(self.least, kept)
        self.log.truncate_to(offset, high_watermark=offset, now_ms=0)
        del self.branch[kept:]
        self.damaged = {known for known in self.damaged if known < offset}
        self.least = self.log.durable_offset - self.start

    def start_over(self, offset: int) -> None:
        if self.log.offline_reason is None:
            self.restart = offset
        self.log.start_over(offset, now_ms=0)
        self.start, self.branch, self.least, self.restart = offset, [], 0, None
        self.damaged.clear()

    def crash(self, choices: CrashChoices | None = None) -> None:
        self.disk = self.disk.crash(choices)

    def check_reopened(self) -> None:
        log = self.log
        assert log.offline_reason is None, log.offline_reason
        assert self.report.damage == [] or self.bad_end == BadEnd.KEEP, self.report.findings
        if self.restart is not None and log.log_start_offset == log.log_end_offset == self.restart:
            self.start, self.branch, self.least = self.restart, [], 0
        self.restart = None
        assert log.log_start_offset == self.start
        left = log.log_end_offset - self.start
        assert self.least <= left <= len(self.branch), f"of {self.least} to {len(self.branch)} batches {left} are left"
        self.branch = [self.check_batch(index) for index in range(left)]
        self.least = left
        self.check_lineage()

    def check_batch(self, index: int) -> bytes:
        """Checks that a batch is as it was, or damaged and named, if it is not among the durable ones."""
        expected, offset = self.branch[index], self.start + index
        try:
            found = bytes(self.log.read(offset, 1, self.log.log_end_offset).data)
        except DamagedBatch:
            assert index >= self.least or offset in self.damaged, f"the batch at {offset} was durable, and is damaged"
            self.damaged.add(offset)
            epochs = [one.epoch for one in self.log.damaged_ranges() if one.start == offset and one.epoch is not None]
            assert epochs in ([], [parse_header(expected).leader_epoch]), "a row that was dropped is believed"
        else:
            assert found == expected, "a batch that was dropped is among those that took its place"
        return expected

    def check_lineage(self) -> None:
        if self.log.damage:
            return  # epochs that have lost their rows are not known
        expected: dict[int, int] = {}
        for batch in iter_batches(b"".join(self.branch)):
            expected.setdefault(batch.header.leader_epoch, batch.header.base_offset)
        assert self.log.lineage == sorted(expected.items())
        if self.branch:
            assert self.log.tail.epoch == max(expected)


@pytest.fixture(autouse=True, params=[BadEnd.TRUNCATE, BadEnd.KEEP], ids=["alone", "with others"])
def bad_end(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Follower, "bad_end", request.param)


History = Callable[[Follower], None]


def two_rounds(follower: Follower) -> None:
    """Protocol table, case "two rounds": 1:0 2:3 4:6 against a leader's 1:0 3:5 5:9."""
    for epoch, count in ((1, 3), (2, 3), (4, 2)):
        follower.append(epoch, count)
        follower.flush()
    follower.truncate(6)
    follower.truncate(3)
    follower.append(1, 2)
    follower.append(3, 2)
    follower.flush()
    follower.append(3, 2)
    follower.append(5)
    follower.flush()


def of_what_nobody(follower: Follower) -> None:
    follower.append(1, 2)
    follower.flush()
    follower.append(4, 4)
    follower.truncate(4)
    follower.append(4, 1)
    follower.truncate(2)
    follower.append(3, 3)
    follower.flush()


def of_everything(follower: Follower) -> None:
    follower.append(4, 5)
    follower.flush()
    follower.truncate(0)
    follower.append(3, 4)
    follower.flush()
    follower.append(3, 2)


def again_and_again(follower: Follower) -> None:
    for epoch in (9, 7, 5, 3):
        follower.append(epoch, 4)
        follower.flush()
        follower.truncate(1 if epoch != 9 else 0)
        if epoch == 9:
            follower.append(2)
            follower.flush()


def starting_over_ahead(follower: Follower) -> None:
    follower.append(4, 5)
    follower.flush()
    follower.start_over(40)
    follower.append(2, 2)
    follower.flush()
    follower.append(3, 2)


def starting_over_behind(follower: Follower) -> None:
    follower.start_over(40)
    follower.append(4, 5)
    follower.flush()
    follower.start_over(38)
    follower.append(2, 3)
    follower.flush()
    follower.start_over(38)
    follower.append(1, 1)


HISTORIES: list[History] = [
    two_rounds,
    of_what_nobody,
    of_everything,
    again_and_again,
    starting_over_ahead,
    starting_over_behind,
]
SEGMENT_BYTES = (1 << 20, 3 * BATCH_BYTES)


def disk_of(seed: int) -> SimDisk:
    disk = SimDisk(seed)
    disk.medium.exposes_old_blocks = seed % 2 == 1
    return disk


def recover(follower: Follower) -> None:
    """Dies one operation later each time it opens, until it gets through."""
    for operation in range(1, 80):
        follower.disk.crash_at(operation)
        try:
            follower.open()
            break
        except Crashed:
            follower.crash()
    else:
        pytest.fail("recovery never ends")
    follower.disk.crash_at(1 << 40)


def go_on(follower: Follower) -> None:
    """As a follower does: cuts what the leader lacks, and takes what the leader has, of whatever epoch."""
    cut = follower.start + len(follower.branch) // 2
    follower.truncate(cut)
    epoch = follower.log.tail.epoch
    follower.append(epoch, 1)
    follower.flush()
    follower.append(epoch + 1, 2)
    follower.crash()
    follower.open()
    follower.check_reopened()


@pytest.mark.parametrize("segment_bytes", SEGMENT_BYTES, ids=["one segment", "several segments"])
@pytest.mark.parametrize("history", HISTORIES)
@series.seeds(1, 6)
def test_a_crash_at_any_operation_leaves_a_piece_of_one_branch(
    history: History, segment_bytes: int, seeds: range
) -> None:
    counting = Follower(disk_of(0), segment_bytes)
    before = counting.disk.operations
    history(counting)
    for operation in series.steps(counting.disk.operations - before, seeds):
        for seed in seeds:
            follower = Follower(disk_of(seed), segment_bytes)
            follower.disk.crash_at(operation)
            with suppress(Crashed):
                history(follower)
            follower.crash()
            recover(follower)
            follower.check_reopened()
            go_on(follower)


def live(follower: Follower, rng: random.Random) -> None:
    """Opens the log, and does what a follower may be told to, on a disk that may fail, until the machine stops."""
    medium = follower.disk.medium
    if rng.random() < 0.7:
        follower.disk.crash_at(rng.randint(1, 60))
    try:
        follower.open()
        follower.check_reopened()
        if rng.random() < 0.3:
            medium.faults = FaultRates(write_error=rng.choice((0, 0.02)), sync_error=rng.choice((0, 0.05)))
        if rng.random() < 0.2:
            medium.capacity_bytes = medium.used_bytes + rng.randrange(4_000)
        for _ in range(rng.randint(5, 40)):
            act(follower, rng)
    except Crashed:
        pass
    medium.faults, medium.capacity_bytes = NO_FAULTS, CAPACITY_BYTES
    if rng.random() < 0.4:
        follower.disk = follower.disk.kill()
    else:
        follower.crash()


def act(follower: Follower, rng: random.Random) -> None:
    end = follower.start + len(follower.branch)
    with suppress(TidelogError, OSError):
        match rng.randrange(9):
            case 0 | 1 | 2 | 3:
                follower.append(follower.log.tail.epoch + rng.randrange(3), rng.randint(1, 3))
            case 4 | 5:
                follower.flush()
            case 6 | 7:
                follower.truncate(rng.randint(max(follower.start, end - 6), end))
            case 8 if rng.random() < 0.3:
                follower.start_over(rng.randint(0, end + 5))


@series.seeds(30, 400)
def test_drawn_histories_of_followers_with_crashes_kills_and_disk_faults(seeds: range) -> None:
    for seed in seeds:
        rng = stream(seed, "follower")
        follower = Follower(disk_of(seed), rng.choice(SEGMENT_BYTES))
        for _ in range(rng.randint(2, 6)):
            live(follower, rng)
        try:
            follower.open()
            follower.check_reopened()
            go_on(follower)
        except BaseException:
            print(f"seed {seed}")  # noqa: T201 - pytest shows it with the failure
            raise


def up_to_the_last_flush(follower: Follower) -> None:
    """What is written after a truncation, un-synced: the leader's batches of epoch 3 where those of epoch 4 were."""
    follower.append(1, 2)
    follower.append(4, 4)
    follower.flush()
    follower.append(4, 1)
    follower.flush()  # the rows before say how far the log was durable
    follower.truncate(2)
    follower.append(3, 1)
    follower.flush()
    follower.append(3, 2)


def a_truncation_to_the_base_of_the_log(follower: Follower) -> None:
    follower.append(4, 3)
    follower.flush()
    follower.truncate(0)
    follower.append(3, 2)


@pytest.mark.parametrize("is_exposing", [False, True])
@pytest.mark.parametrize("history", [up_to_the_last_flush, a_truncation_to_the_base_of_the_log])
def test_every_crash_of_what_is_written_after_a_truncation(history: History, is_exposing: bool) -> None:
    """All subsets of the un-synced writes, all tears."""
    seen = set()
    for choices in enumerate_crashes():
        disk = SimDisk(0)
        disk.medium.exposes_old_blocks = is_exposing
        follower = Follower(disk, 1 << 20)
        history(follower)
        follower.crash(choices)
        state = tuple((path, bytes(node.data)) for path, node in follower.disk.medium.walk().items())
        if state not in seen:
            seen.add(state)
            follower.open()
            follower.check_reopened()
            go_on(follower)
    assert len(seen) > 1


def test_a_leftover_row_of_a_higher_epoch_is_not_believed() -> None:
    """Rows that were dropped come back, whole, in the place that they had: neither they nor their marks count."""
    follower = Follower(SimDisk(0), 1 << 20)
    follower.append(1, 2)
    for _ in range(6):
        follower.append(4)
        follower.flush()
    active = follower.log.active
    old_rows, old_first = active.raw_rows(0, active.slots), active.first_sequence
    old_batches = b"".join(follower.branch)
    follower.truncate(2)
    follower.append(3, 2)
    follower.flush()
    active = follower.log.active
    assert active.first_sequence >= old_first + len(old_rows) // 128
    end = active.slots
    active.catalog.pwritev([old_rows[end * 128 :]], end * 128)
    active.log.pwritev([old_batches[active.log_bytes :]], active.log_bytes)
    follower.disk = follower.disk.kill()
    follower.open()
    follower.check_reopened()
    assert follower.log.log_end_offset == 4
    go_on(follower)
