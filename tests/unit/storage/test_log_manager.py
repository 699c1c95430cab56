from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from tidelog.config.errors import ConfigError
from tidelog.model.batch_codec import encode_batch
from tidelog.model.batch_header import RecordBatch, assign_offsets, split_batches
from tidelog.model.ids import PartitionId, TopicId
from tidelog.model.ports import Files
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.faults import Crashed
from tidelog.storage.disk_files import DiskFiles
from tidelog.storage.log_manager import LogManager
from tidelog.storage.partition_log import LogSettings

A0, A1, B0 = PartitionId(TopicId("a" * 32), 0), PartitionId(TopicId("a" * 32), 1), PartitionId(TopicId("b" * 32), 0)
SETTINGS = LogSettings(segment_bytes=1 << 20, segment_ms=1 << 40)


def incarnations() -> Callable[[], str]:
    numbers = count(1)
    return lambda: f"incarnation-{next(numbers)}"


def manager(files: Files) -> LogManager:
    return LogManager(files, open_max=16, new_incarnation=incarnations())


def remove_topic(logs: LogManager, topic_id: TopicId) -> None:
    logs.close_removed([partition_id for partition_id in logs.logs if partition_id.topic_id == topic_id])
    logs.remove_aside(logs.set_topic_aside(topic_id))


def remove_partition(logs: LogManager, partition_id: PartitionId) -> None:
    logs.close_removed([partition_id])
    logs.remove_aside(logs.set_partition_aside(partition_id))


def one_batch(offset: int) -> list[RecordBatch]:
    (batch,) = split_batches(encode_batch([(1, b"k", b"v")]), batch_bytes_max=1 << 20)
    return [assign_offsets(batch, offset, 1)]


def test_logs_live_below_their_topics_id_and_come_back(files: Files) -> None:
    first = manager(files)
    log, report = first.open_log(A1, SETTINGS, 0)
    log.append(one_batch(0), 0)
    assert report.findings == []
    assert files.list(f"topics/{'a' * 32}/1") == [
        "00000000000000000000.catalog",
        "00000000000000000000.log",
        "metainfo.0",
        "metainfo.1",
    ]
    assert first.close({A1: 1}) == []

    second = manager(files)
    log, report = second.open_log(A1, SETTINGS, 0)
    assert (log.log_end_offset, log.incarnation, report.findings) == (1, "incarnation-1", [])
    second.close({A1: 1})


def test_the_metadata_log_has_a_directory_of_its_own(files: Files) -> None:
    logs = manager(files)
    logs.open_slots(0)
    assert "metainfo.0" in files.list("metadata")
    assert logs.topic_ids() == []
    logs.close({})


def test_topic_ids_are_what_is_on_disk_and_nothing_else_is_touched(files: Files) -> None:
    logs = manager(files)
    for partition_id in (B0, A0, A1):
        logs.open_log(partition_id, SETTINGS, 0)
    files.make_dirs("topics/notes")
    assert logs.topic_ids() == ["a" * 32, "b" * 32]
    logs.close({})

    logs = manager(files)
    assert logs.topic_ids() == ["a" * 32, "b" * 32]
    assert files.exists("topics/notes")
    logs.close({})


def test_remove_topic_removes_its_logs_open_or_not(files: Files) -> None:
    logs = manager(files)
    for partition_id in (A0, B0):
        log, _ = logs.open_log(partition_id, SETTINGS, 0)
        log.append(one_batch(0), 0)
    remove_topic(logs, A0.topic_id)
    assert list(logs.logs) == [B0]
    assert logs.topic_ids() == ["b" * 32]
    remove_topic(logs, A0.topic_id)
    logs.close({})

    logs = manager(files)
    remove_topic(logs, B0.topic_id)
    assert logs.topic_ids() == []
    logs.close({})


def test_a_removed_topic_stays_removed_after_a_power_cut() -> None:
    disk = SimDisk(3)
    logs = manager(disk)
    logs.open_log(A0, SETTINGS, 0)
    remove_topic(logs, A0.topic_id)
    assert disk.crash().list("topics") == []


def test_remove_partition_removes_one_log_open_or_not_and_the_last_ones_topic(files: Files) -> None:
    logs = manager(files)
    for partition_id in (A0, A1, B0):
        logs.open_log(partition_id, SETTINGS, 0)[0].append(one_batch(0), 0)
    remove_partition(logs, A0)
    assert (list(logs.logs), logs.partition_ids()) == ([A1, B0], [A1, B0])
    log, _ = logs.open_log(A0, SETTINGS, 0)
    assert log.log_end_offset == 0, "whoever gets it again begins with nothing"
    logs.close({})

    logs = manager(files)
    for partition_id in (A0, A1, A1):
        remove_partition(logs, partition_id)
    assert (logs.partition_ids(), logs.topic_ids()) == ([B0], [B0.topic_id])
    logs.close({})


def test_a_power_cut_while_a_log_is_removed_leaves_all_of_it_or_no_log() -> None:
    operation, is_over = 1, False
    while not is_over:
        disk = SimDisk(3)
        logs = manager(disk)
        log, _ = logs.open_log(A0, SETTINGS, 0)
        log.append(one_batch(0), 0)
        log.flush()
        disk.crash_at(operation)
        is_over = True
        try:
            remove_partition(logs, A0)
        except Crashed:
            is_over = False
        disk = disk.crash()
        logs = manager(disk)
        logs.remove_leftovers()
        if logs.partition_ids():
            assert logs.open_log(A0, SETTINGS, 0)[0].log_end_offset == 1
        else:
            assert logs.topic_ids() == []
        assert not is_over or not logs.partition_ids()
        operation += 1
    assert operation > 4


def test_only_one_manager_uses_a_directory(files: Files) -> None:
    first = manager(files)
    with pytest.raises(ConfigError, match=r"in use: .*lock is locked by .*--data-dir"):
        manager(files)
    first.close({})
    manager(files).close({})


def test_the_error_names_the_process_that_holds_the_directory(tmp_path: Path) -> None:
    program = (
        "import sys; from tidelog.storage.disk_files import DiskFiles\n"
        "files = DiskFiles(sys.argv[1]); files.make_dirs(''); lock = files.lock('lock')\n"
        "print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(ConfigError, match=f"locked by process {holder.pid}"):
            manager(DiskFiles(str(tmp_path)))
        holder.communicate()
    manager(DiskFiles(str(tmp_path))).close({})


def test_statistics_count_what_is_open(files: Files) -> None:
    logs = manager(files)
    log, _ = logs.open_log(A0, SETTINGS, 0)
    logs.open_log(B0, SETTINGS, 0)
    log.append(one_batch(0), 0)
    log.roll(0)
    log.take_offline("a test said so")
    statistics = logs.statistics()
    assert (statistics.logs, statistics.logs_offline, statistics.segments) == (2, 1, 3)
    assert statistics.log_bytes == log.log_bytes > 0
    assert 0 < statistics.open_files <= 16
    assert statistics.free_bytes > 0
    assert logs.close({}) == [f"the log of partition {A0} was offline: a test said so"]


def test_a_log_whose_disk_fails_does_not_keep_the_others_from_closing() -> None:
    disk = SimDisk(5)
    logs = manager(disk)
    for partition_id in (A0, B0):
        log, _ = logs.open_log(partition_id, SETTINGS, 0)
        log.append(one_batch(0), 0)
    disk.medium.read_only = True
    findings = logs.close({A0: 1, B0: 1})
    assert len(findings) == 2
    disk.medium.read_only = False
    manager(disk).close({})
