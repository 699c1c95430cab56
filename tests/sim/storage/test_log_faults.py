"""One log on a disk that fails while it runs: it says what it knows, stops when it must, and goes on when it can."""

from __future__ import annotations

import pytest

from tidelog.model.errors import DiskFull, InternalError, LogOffline
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.faults import NO_FAULTS, FaultRates
from tidelog.sim.kit.medium import CAPACITY_BYTES, Medium
from tidelog.sim.storage.log_driver import LogDriver


def driver_with(batches: int, *, seed: int = 0, segment_bytes: int = 1 << 20) -> LogDriver:
    driver = LogDriver(SimDisk(seed), segment_bytes=segment_bytes, producer_id=7)
    for _ in range(batches):
        driver.append(value_bytes=300)
    assert driver.flush()
    return driver


def test_after_a_failed_fsync_nothing_is_written_or_synced_again_until_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = driver_with(3)
    medium = driver.disk.medium
    driver.append()
    medium.faults = FaultRates(sync_error=1.0)
    assert not driver.flush()
    medium.faults = NO_FAULTS
    touched: list[str] = []
    monkeypatch.setattr(Medium, "book", lambda _, kind, detail, payload: touched.append(f"{kind} {detail}"))
    with pytest.raises(LogOffline):
        driver.append()
    with pytest.raises(LogOffline):
        driver.delete_records(1)
    driver.log.mark()
    assert not driver.flush()
    assert driver.log.durable_offset == 3
    assert driver.read_all().keys() >= driver.acked.keys()
    driver.close()
    assert not [operation for operation in touched if ".log" in operation or ".catalog" in operation]
    monkeypatch.undo()
    driver.kill()
    driver.open()
    driver.check_reopened()
    driver.append()
    assert driver.flush()


def test_a_failed_write_leaves_the_outcome_unknown_and_never_half_a_record() -> None:
    outcomes = set()
    for seed in range(80):
        driver = driver_with(2, seed=seed)
        driver.disk.medium.faults = FaultRates(write_error=0.6)
        try:
            driver.append(records=3)
        except InternalError:
            assert driver.log.offline_reason is not None
        driver.disk.medium.faults = NO_FAULTS
        driver.kill()
        driver.open()
        driver.check_reopened()
        outcomes.add(driver.log.log_end_offset)
    assert outcomes == {2, 5}


@pytest.mark.parametrize("free_bytes", range(0, 700, 45))
def test_a_full_disk_refuses_and_takes_no_part_and_resumes_by_itself(free_bytes: int) -> None:
    driver = driver_with(3)
    medium = driver.disk.medium
    medium.capacity_bytes = medium.used_bytes + free_bytes
    refused = 0
    for _ in range(4):
        try:
            driver.append(value_bytes=200)
        except DiskFull:
            refused += 1
    assert refused > 0
    driver.flush()
    assert driver.read_all().keys() >= driver.acked.keys()
    medium.capacity_bytes = CAPACITY_BYTES
    driver.append()
    assert driver.flush()
    driver.crash()
    driver.open()
    driver.check_reopened()


@pytest.mark.parametrize("free_bytes", [0, 100, 200, 500, 1000])
def test_a_roll_on_a_full_disk_leaves_no_half_made_segment(free_bytes: int) -> None:
    driver = driver_with(1, segment_bytes=300)
    medium = driver.disk.medium
    files = list(medium.walk())
    medium.capacity_bytes = medium.used_bytes + free_bytes
    with pytest.raises(DiskFull):
        for _ in range(4):
            driver.append(value_bytes=300)
    medium.capacity_bytes = CAPACITY_BYTES
    assert len(list(medium.walk())) - len(files) in (0, 2, 4)
    driver.append()
    assert driver.flush()
    driver.crash()
    driver.open()
    driver.check_reopened()


def test_a_read_only_disk_goes_on_reading() -> None:
    driver = driver_with(3)
    driver.disk.medium.read_only = True
    with pytest.raises(InternalError):
        driver.append()
    assert driver.read_all() == driver.acked
    driver.disk.medium.read_only = False
    driver.kill()
    driver.open()
    driver.check_reopened()


def test_an_unreadable_sector_costs_the_batch_on_it_and_heals_when_readable() -> None:
    driver = driver_with(5)
    driver.disk.medium.faults = FaultRates(read_error=1.0)
    assert driver.read_what_is_sound() == {}
    driver.disk.medium.faults = NO_FAULTS
    assert driver.read_all() == driver.acked
