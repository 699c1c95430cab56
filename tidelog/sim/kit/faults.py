"""Faults of a simulated disk while the machine runs, and the exception that ends a machine.

| fault | what the program sees | what is on the disk | |---|---|---| | `read_error` | EIO | unchanged | | `write_error`
| EIO after any prefix of the bytes | that prefix, once synced | | `sync_error` | EIO, and success from then on | any
part of the un-synced writes; the rest is dropped and marked clean | | `lost_write` | success, until the cache is
dropped | nothing | | `misdirected_write` | success, until the cache is dropped | the bytes, elsewhere in this or
another file | | `lying_sync` | success | nothing yet: a crash may still lose it |

A full disk (`capacity_bytes`), a read-only one (`read_only`), crashes (`crash_at`) and damage at rest
(`tidelog.sim.kit.rot`) are states and functions of the disk rather than chances.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


class Crashed(BaseException):
    """The machine is off. Not an `Exception`, and raised again by every use of the old disk, so that neither `except`
    nor `finally` can do what no crashed process does."""


@dataclass(frozen=True, slots=True)
class FaultRates:
    """Chances of disk faults per operation, 0 to 1."""

    read_error: float = 0.0
    write_error: float = 0.0
    sync_error: float = 0.0
    lost_write: float = 0.0
    misdirected_write: float = 0.0
    lying_sync: float = 0.0


NO_FAULTS = FaultRates()


@dataclass(slots=True)
class DiskStatistics:
    """Counts of operations and faults since the disk was made, across power cuts."""

    operations: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
