"""The lives of a log or a slot store on a disk that crashes and fails.

A life begins with opening what is there and holding it to its promises. It ends by a power cut or a killed process, at
a drawn operation of the disk, in recovery too, or once enough was done. In some lives writes and fsyncs fail, or the
disk is full.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol, TypeVar

from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.faults import NO_FAULTS, Crashed, FaultRates
from tidelog.sim.kit.medium import CAPACITY_BYTES

FAULT_RATES = (0.0, 0.0, 0.02, 0.2)


class Driver(Protocol):
    """A log or a slot store that is driven directly."""

    disk: SimDisk

    def open(self) -> None: ...

    def check_reopened(self) -> None:
        """Raises `AssertionError` if what was opened breaks a promise."""

    def flush(self) -> bool: ...

    def close(self) -> None: ...

    def kill(self) -> None: ...

    def crash(self) -> None: ...


D = TypeVar("D", bound=Driver)


def live(driver: D, act: Callable[[D, random.Random], None], rng: random.Random) -> None:
    """Lives one life; `act` does one thing that a broker does."""
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
            act(driver, rng)
    except Crashed:
        pass
    medium.faults, medium.capacity_bytes = NO_FAULTS, CAPACITY_BYTES
    if rng.random() < 0.4:
        driver.kill()
    else:
        driver.crash()


def check_at_the_end(driver: Driver, write: Callable[[], object]) -> None:
    """On a healthy disk: it opens, takes a write, and neither a kill nor a power cut changes anything any more."""
    for end in (driver.kill, driver.crash):
        driver.open()
        driver.check_reopened()
        write()
        assert driver.flush()
        end()
    driver.open()
    driver.check_reopened()
    driver.close()
