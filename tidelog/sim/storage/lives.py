"""Runs of a log or a slot store, one process after the other, on a disk that crashes and fails.

A process first opens what is on the disk and checks it against what was promised before. It ends by a power cut or a
kill: at a random disk operation, also during recovery, or after a number of actions. In some runs writes and fsyncs
fail, or the disk is full.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from tidelog.sim.kit.faults import NO_FAULTS, Crashed, FaultRates
from tidelog.sim.kit.medium import CAPACITY_BYTES
from tidelog.sim.storage.log_driver import LogDriver
from tidelog.sim.storage.slot_driver import SlotDriver
from tidelog.storage.flush import Flush
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.slot_store import SlotStore

FAULT_RATES = (0.0, 0.0, 0.02, 0.2)


D = TypeVar("D", LogDriver, SlotDriver)


def live(driver: D, act: Callable[[D, random.Random], None], rng: random.Random) -> None:
    """Runs one process, from opening what is on the disk to a crash. `act` performs one action of a broker."""
    medium = driver.disk.medium
    if rng.random() < 0.7:
        driver.disk.crash_at(rng.randint(1, rng.choice((5, 30, 100))))
    with suppress(Crashed):
        driver.open()
        driver.check_reopened()
        if rng.random() < 0.5:
            medium.faults = FaultRates(write_error=rng.choice(FAULT_RATES), sync_error=rng.choice(FAULT_RATES))
        if rng.random() < 0.3:
            medium.capacity_bytes = medium.used_bytes + rng.randrange(3_000)
        for _ in range(rng.randint(5, 60)):
            act(driver, rng)
    medium.faults, medium.capacity_bytes = NO_FAULTS, CAPACITY_BYTES
    if rng.random() < 0.4:
        driver.kill()
    else:
        driver.crash()


def flush_amid(
    target: PartitionLog | SlotStore, finish: Callable[[Flush], object], write: Callable[[], None], rng: random.Random
) -> None:
    """Flushes a log or a slot store, with up to two writes between the beginning of the flush and its end."""
    if not target.is_dirty:
        return
    flush = target.begin_flush()
    try:
        for _ in range(rng.randrange(3)):
            write()
    finally:
        finish(flush)


def check_at_the_end(driver: LogDriver | SlotDriver, write: Callable[[], object]) -> None:
    """Checks, on a healthy disk, that the log or store opens, takes a write, and is unchanged by a kill and by a power
    cut."""
    for end in (driver.kill, driver.crash):
        driver.open()
        driver.check_reopened()
        write()
        assert driver.flush()
        end()
    driver.open()
    driver.check_reopened()
    driver.close()
