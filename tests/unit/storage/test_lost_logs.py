"""A log that was made here and is gone, or its end is: what stands in its place says so, whenever a crash comes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec import UNSET

from tests.unit.storage.test_log_manager import one_batch
from tidelog.model.ids import PartitionId, TopicId
from tidelog.sim.kit import rot
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.faults import Crashed
from tidelog.sim.kit.inode import SECTOR_BYTES
from tidelog.storage.directory_identity import DirectoryIdentity
from tidelog.storage.log_manager import LogManager, log_directory
from tidelog.storage.metainfo import NAMES
from tidelog.storage.partition_log import LogSettings, PartitionLog
from tidelog.storage.rows import ROW_BYTES

LOG = PartitionId(TopicId("ab" * 16), 0)
OTHER = PartitionId(LOG.topic_id, 1)
SETTINGS = LogSettings(segment_bytes=1 << 20, segment_ms=1 << 40)
SINCE, HELD = 5, 6
FIRST_SEGMENT = f"{log_directory(LOG)}/{0:020}"
ROWS_IN_A_SECTOR = SECTOR_BYTES // ROW_BYTES


def manager_on(disk: SimDisk) -> LogManager:
    return LogManager(disk, open_max=64, new_incarnation=lambda: "i")


def open_at(disk: SimDisk, since: int = SINCE, partition_id: PartitionId = LOG) -> PartitionLog:
    """Opens the log as a new process does."""
    manager = manager_on(disk)
    return manager.open_log(partition_id, SETTINGS, 0, held=manager.held(since))[0]


def restarted(disk: SimDisk) -> SimDisk:
    """The disk without its process; nothing is lost that was synced."""
    return disk.crash()


def with_log(batches: int = 2, held: int = HELD, *, is_idle: bool = False) -> SimDisk:
    """A disk on which the log was made, and noted; in an idle log a mark follows the last batch."""
    disk = SimDisk(0)
    manager = manager_on(disk)
    manager.identity.store(DirectoryIdentity(cluster_id="c", node_id=1, storage="s"))
    log, _ = manager.open_log(LOG, SETTINGS, 0, held=manager.held(SINCE))
    assert log.stands_in_since is UNSET, "it is new"
    for offset in range(batches):
        log.append(one_batch(offset), 0)
    if batches:
        log.flush()
    if is_idle:
        log.mark()
        rot.write_back(disk.medium)
    manager.note_held(held)
    return restarted(disk)


def without_directory(disk: SimDisk) -> SimDisk:
    disk.remove_tree(log_directory(LOG))
    disk.sync_dir(f"topics/{LOG.topic_id}")
    return disk


def test_a_log_that_is_there_stands_in_for_none() -> None:
    disk = with_log()
    for _ in range(2):
        log = open_at(disk)
        assert (log.stands_in_since, log.log_end_offset) == (UNSET, 2)
        disk = restarted(disk)


@pytest.mark.parametrize("batches", [0, 2])
def test_a_log_that_is_gone_is_stood_in_for_from_life_to_life(batches: int) -> None:
    disk = without_directory(with_log(batches))
    for _ in range(3):
        log = open_at(disk)
        assert (log.stands_in_since, log.log_end_offset) == (SINCE, 0)
        disk = restarted(disk)


def test_it_says_so_when_it_holds_something_again() -> None:
    disk = without_directory(with_log())
    log = open_at(disk)
    log.append(one_batch(0), 0)
    log.flush()
    log = open_at(restarted(disk))
    assert (log.stands_in_since, log.log_end_offset) == (SINCE, 1)


def test_a_log_that_was_never_noted_is_new() -> None:
    log = open_at(without_directory(with_log(held=SINCE)))
    assert log.stands_in_since is UNSET


def test_a_log_that_is_to_begin_later_is_new() -> None:
    log = open_at(without_directory(with_log()), since=HELD)
    assert log.stands_in_since is UNSET


def without_segments(disk: SimDisk) -> SimDisk:
    for name in disk.list(log_directory(LOG)):
        if name not in NAMES:
            disk.remove(f"{log_directory(LOG)}/{name}")
    disk.sync_dir(log_directory(LOG))
    return disk


def test_a_log_whose_segments_are_gone_is_lost() -> None:
    assert open_at(without_segments(with_log())).stands_in_since == SINCE


def test_a_log_that_lost_its_metainfo_alone_is_there() -> None:
    disk = with_log()
    for name in NAMES:
        disk.remove(f"{log_directory(LOG)}/{name}")
    log = open_at(disk)
    assert (log.stands_in_since, log.log_end_offset) == (UNSET, 2)


def test_another_logs_directory_in_its_place_is_a_loss() -> None:
    disk = with_log()
    disk.rename(log_directory(LOG), log_directory(OTHER))
    log = open_at(disk, partition_id=OTHER)
    assert (log.stands_in_since, log.log_end_offset) == (SINCE, 0)
    assert any("stranger" in name for name in disk.list(log_directory(OTHER)))


@pytest.mark.parametrize("lose", [without_directory, without_segments])
def test_no_crash_makes_a_lost_log_one_in_good_standing(lose: Callable[[SimDisk], SimDisk]) -> None:
    number, was_crashed = 1, True
    while was_crashed:
        disk, was_crashed = lose(with_log()), False
        disk.crash_at(number)
        try:
            open_at(disk)
        except Crashed:
            was_crashed = True
        log = open_at(restarted(disk))
        assert (log.stands_in_since, log.log_end_offset) == (SINCE, 0), number
        number += 1
    assert number > 5


def with_refused_rows(batches: int, *, is_idle: bool = False) -> SimDisk:
    """A disk that refuses to read the catalog's second sector. In the first are the header and three rows."""
    disk = with_log(batches, is_idle=is_idle)
    rot.make_unreadable(disk.medium, f"{FIRST_SEGMENT}.catalog", SECTOR_BYTES, SECTOR_BYTES)
    return disk


def without_end() -> SimDisk:
    """The last of five batches is damaged, and its row cannot be read, beside that of a batch which is sound."""
    disk = with_refused_rows(ROWS_IN_A_SECTOR + 1)
    path = f"{FIRST_SEGMENT}.log"
    rot.flip_bit(disk.medium, path, len(disk.medium.walk()[path].durable) - 1)
    return disk


def test_no_crash_makes_a_log_that_lost_its_end_one_in_good_standing() -> None:
    """The sound batch's row is written again, and with it goes what tells that the other was not torn."""
    number, was_crashed = 1, True
    while was_crashed:
        disk, was_crashed = without_end(), False
        disk.crash_at(number)
        try:
            open_at(disk)
        except Crashed:
            was_crashed = True
        log = open_at(disk.kill() if number % 2 else restarted(disk))
        assert log.stands_in_since == SINCE, number
        assert ROWS_IN_A_SECTOR <= log.log_end_offset <= ROWS_IN_A_SECTOR + 1, number
        number += 1
    assert number > 5


@pytest.mark.parametrize("batches", [ROWS_IN_A_SECTOR - 1, ROWS_IN_A_SECTOR])
def test_a_log_that_lost_rows_alone_is_there(batches: int) -> None:
    """The rows that cannot be read are a mark, and that of a sound batch before it."""
    log = open_at(with_refused_rows(batches, is_idle=True))
    assert (log.stands_in_since, log.log_end_offset) == (UNSET, batches)
