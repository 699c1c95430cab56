"""Drawn histories of one slot store, through crashes, kills and a disk that fails.

A seed draws the sizes, a few lives, and for each what happens: puts, slots learned, payloads that come late, floors and
deletions, facts, flushes with puts in between, marks, clean stops; a power cut or a killed process at a drawn
operation, in recovery too; failed writes, failed fsyncs, a full disk. After each life the store is held to its promises
(`tidelog.sim.storage.slot_driver`).
"""

from __future__ import annotations

import random

from tidelog.model.errors import TidelogError
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.faults import NO_FAULTS, Crashed, FaultRates
from tidelog.sim.kit.medium import CAPACITY_BYTES
from tidelog.sim.kit.seeds import stream
from tidelog.sim.storage.slot_driver import SlotDriver

SEGMENT_BYTES = (300, 900, 2_500, 1 << 20)
HANDLES_MAX = (3, 8, 64)
PAYLOAD_BYTES = (None, 0, 0, 100, 700)
FAULT_RATES = (0.0, 0.0, 0.02, 0.2)
WINDOW = 12


def run_seed(seed: int) -> str:
    """Runs one history; returns the disk's trace. Raises `AssertionError`, or what the store raised, if it failed."""
    rng = stream(seed, "history")
    disk = SimDisk(seed)
    disk.medium.exposes_old_blocks = rng.random() < 0.2
    driver = SlotDriver(disk, segment_bytes=rng.choice(SEGMENT_BYTES), handles_max=rng.choice(HANDLES_MAX))
    for _ in range(rng.randint(1, 5)):
        _live(driver, rng)
    _check_at_the_end(driver)
    return disk.medium.trace()


def _live(driver: SlotDriver, rng: random.Random) -> None:
    medium = driver.disk.medium
    if rng.random() < 0.7:
        driver.disk.crash_at(rng.randint(1, rng.choice((5, 30, 100))))
    try:
        driver.open()
        driver.check_reopened()
        if rng.random() < 0.5:
            medium.faults = FaultRates(write_error=rng.choice(FAULT_RATES), sync_error=rng.choice(FAULT_RATES))
        if rng.random() < 0.3:
            medium.capacity_bytes = medium.used_bytes + rng.randrange(3_000)
        for _ in range(rng.randint(5, 60)):
            _act(driver, rng)
    except Crashed:
        pass
    medium.faults, medium.capacity_bytes = NO_FAULTS, CAPACITY_BYTES
    if rng.random() < 0.4:
        driver.kill()
    else:
        driver.crash()


def _act(driver: SlotDriver, rng: random.Random) -> None:
    """One thing that a shell does; what the disk refuses is refused."""
    try:
        match rng.randrange(13):
            case 0 | 1 | 2:
                put(driver, rng)
            case 3 | 4:
                touch(driver, rng)
            case 5 | 6:
                driver.flush()
            case 7:
                _flush_amid_puts(driver, rng)
            case 8:
                driver.set_floor(driver.floor + rng.randrange(WINDOW // 2))
            case 9:
                driver.delete_below()
            case 10:
                driver.store_facts()
            case _:
                _idle(driver, rng)
    except (TidelogError, OSError):
        pass


def _idle(driver: SlotDriver, rng: random.Random) -> None:
    """A clean stop, a mark, or somebody who makes room on the disk."""
    medium = driver.disk.medium
    if rng.random() < 0.3:
        medium.capacity_bytes = CAPACITY_BYTES
    if medium.faults is NO_FAULTS and medium.capacity_bytes == CAPACITY_BYTES and rng.random() < 0.5:
        driver.close()
        driver.open()
        driver.check_reopened()
    else:
        driver.store.mark()


def put(driver: SlotDriver, rng: random.Random) -> None:
    """A new value for a position near the floor."""
    driver.put(driver.floor + rng.randrange(WINDOW), payload_bytes=rng.choice(PAYLOAD_BYTES))


def touch(driver: SlotDriver, rng: random.Random) -> None:
    """One more entry for a slot that is there, or one whose payload is missing."""
    if not driver.now.slots:
        return
    position = rng.choice(sorted(driver.now.slots))
    if rng.random() < 0.1:
        driver.learn_and_put(position, driver.floor + rng.randrange(WINDOW), payload_bytes=rng.choice((40, 900)))
        return
    rng.choice((driver.learn, driver.learn, driver.put_faulty, driver.repair, driver.revive))(position)


def _flush_amid_puts(driver: SlotDriver, rng: random.Random) -> None:
    if not driver.store.is_dirty:
        return
    flush = driver.store.begin_flush()
    try:
        for _ in range(rng.randrange(3)):
            put(driver, rng)
    finally:
        driver.finish(flush)


def _check_at_the_end(driver: SlotDriver) -> None:
    """On a healthy disk: it opens, takes a put, and neither a kill nor a power cut changes anything any more."""
    for end in (driver.kill, driver.crash):
        driver.open()
        driver.check_reopened()
        driver.put(driver.floor)
        assert driver.flush()
        end()
    driver.open()
    driver.check_reopened()
    driver.close()
