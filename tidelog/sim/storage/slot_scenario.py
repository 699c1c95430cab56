"""Random histories of one slot store, with crashes, kills and a disk that fails.

A seed determines the sizes, a few processes, and the actions of each: puts, learned slots, late payloads, floors and
deletions, metainfo, flushes with puts in between, marks of the durable end, clean stops; a power cut or a kill at a
random disk operation, also during recovery; failed writes, failed fsyncs, a full disk. After each process the store is
checked against its promises (`tidelog.sim.storage.slot_driver`).
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
from tidelog.sim.storage.slot_driver import SlotDriver
from tidelog.storage.scan import BadEnd

SEGMENT_BYTES = (300, 900, 2_500, 1 << 20)
HANDLES_MAX = (3, 8, 64)
PAYLOAD_BYTES = (None, 0, 0, 100, 700)
WINDOW = 12


def run_seed(seed: int) -> str:
    """Runs the history of one seed; returns the disk's trace. Raises `AssertionError` or the store's error if the
    history fails."""
    rng = stream(seed, "history")
    disk = SimDisk(seed)
    disk.medium.exposes_old_blocks = rng.random() < 0.2
    driver = SlotDriver(
        disk,
        segment_bytes=rng.choice(SEGMENT_BYTES),
        handles_max=rng.choice(HANDLES_MAX),
        vouches=rng.random() < 0.5,
        bad_end=stream(seed, "ends").choice((BadEnd.KEEP, BadEnd.TRUNCATE)),
    )
    for _ in range(rng.randint(1, 5)):
        live(driver, _act, rng)
    check_at_the_end(driver, lambda: driver.put(driver.floor))
    return disk.medium.trace()


def _act(driver: SlotDriver, rng: random.Random) -> None:
    """Performs one random action of a Paxos replica on its slot store; the disk may fail it."""
    with suppress(TidelogError, OSError):
        match rng.randrange(13):
            case 0 | 1 | 2:
                put(driver, rng)
            case 3 | 4:
                touch(driver, rng)
            case 5 | 6:
                driver.flush()
            case 7:
                flush_amid(driver.store, driver.finish, lambda: put(driver, rng), rng)
            case 8:
                driver.set_floor(driver.floor + rng.randrange(WINDOW // 2))
            case 9:
                driver.delete_below()
            case 10:
                driver.store_metainfo()
            case _:
                _idle(driver, rng)


def _idle(driver: SlotDriver, rng: random.Random) -> None:
    """Closes and reopens the store, or lets it append a mark that says up to where it is durable. Before that, space on
    the disk is sometimes freed."""
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
    """Puts a new value at a position near the floor."""
    driver.put(driver.floor + rng.randrange(WINDOW), payload_bytes=rng.choice(PAYLOAD_BYTES))


def touch(driver: SlotDriver, rng: random.Random) -> None:
    """Puts one more entry for an existing slot: learned, repaired, without its payload, or with the first value of its
    position."""
    if not driver.now.slots:
        return
    position = rng.choice(sorted(driver.now.slots))
    if rng.random() < 0.1:
        driver.learn_and_put(position, driver.floor + rng.randrange(WINDOW), payload_bytes=rng.choice((40, 900)))
        return
    rng.choice((driver.learn, driver.learn, driver.put_faulty, driver.repair, driver.revive))(position)
