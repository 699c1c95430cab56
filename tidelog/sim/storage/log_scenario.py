"""Random histories of one partition log, with crashes, kills and a disk that fails.

A seed determines the sizes, a few processes, and the actions of each: appends, flushes with appends in between,
deletions, segment rolls, marks of the durable end, clean stops; a power cut or a kill at a random disk operation, also
during recovery; failed writes, failed fsyncs, a full disk. After each process the log is checked against its promises
(`tidelog.sim.storage.log_driver`). Most logs have other replicas: between two processes one of their batches may be
damaged, most often the last acknowledged one.
"""

from __future__ import annotations

import random
from contextlib import suppress

from tidelog.model.errors import TidelogError
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.faults import NO_FAULTS
from tidelog.sim.kit.medium import CAPACITY_BYTES
from tidelog.sim.kit.seeds import stream
from tidelog.sim.storage.lives import check_at_the_end, flush_amid, live
from tidelog.sim.storage.log_driver import LogDriver
from tidelog.storage.scan import BadEnd

SEGMENT_BYTES = (300, 600, 2_000, 1 << 20)
HANDLES_MAX = (3, 8, 64)
VALUE_BYTES = (0, 0, 100, 300, 700)


def run_seed(seed: int) -> str:
    """Runs the history of one seed; returns the disk's trace. Raises `AssertionError` or the log's error if the history
    fails."""
    rng, ends = stream(seed, "history"), stream(seed, "ends")
    disk = SimDisk(seed)
    disk.medium.exposes_old_blocks = rng.random() < 0.2
    driver = LogDriver(
        disk,
        segment_bytes=rng.choice(SEGMENT_BYTES),
        handles_max=rng.choice(HANDLES_MAX),
        producer_id=rng.choice((-1, 7)),
        bad_end=ends.choice((BadEnd.KEEP, BadEnd.KEEP, BadEnd.TRUNCATE)),
    )
    for _ in range(rng.randint(1, 5)):
        driver.epoch += rng.randrange(2)
        live(driver, _act, rng)
        if driver.bad_end == BadEnd.KEEP and driver.acked and ends.random() < 0.5:
            driver.rot(max(driver.acked) if ends.random() < 0.7 else ends.choice(sorted(driver.acked)))
    check_at_the_end(driver, driver.append)
    return disk.medium.trace()


def _act(driver: LogDriver, rng: random.Random) -> None:
    """Performs one random action of a broker; the disk may fail it."""
    log, medium = driver.log, driver.disk.medium
    with suppress(TidelogError, OSError):
        match rng.randrange(13):
            case 0 | 1 | 2 | 3 | 4:
                driver.append(records=rng.choice((1, 1, 2, 5)), value_bytes=rng.choice(VALUE_BYTES))
            case 5 | 6:
                driver.flush()
            case 7:
                flush_amid(log, driver.finish, lambda: driver.append(value_bytes=rng.choice(VALUE_BYTES)), rng)
            case 8:
                driver.delete_records(rng.randint(log.log_start_offset, log.durable_offset))
            case 9:
                log.mark()
            case 10:
                log.store_metainfo(log.metainfo(log.durable_offset))
            case 11 if medium.faults is NO_FAULTS and medium.capacity_bytes == CAPACITY_BYTES:
                driver.close()
                driver.open()
                driver.check_reopened()
            case 12 if rng.random() < 0.3:
                medium.capacity_bytes = CAPACITY_BYTES
