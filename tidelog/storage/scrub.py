"""The scrubber of one log: reads all of it, a bounded piece a call, round and round.

Bytes that nobody reads rot unseen, until the last good copy elsewhere has rotted, too. So every batch and every catalog
row is verified now and then, while a peer can still repair it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.storage.rows import ROW_BYTES
from tidelog.storage.verify import STEP_ROWS, Step, verify

if TYPE_CHECKING:
    from tidelog.storage.partition_log import PartitionLog


@dataclass(slots=True)
class ScrubStep:
    """What one call did."""

    bytes_read: int = 0
    bad_rows: int = 0
    """Rows that did not verify. What they said is in the batches."""
    has_finished: bool = False
    """True if the end was reached: the next call begins anew."""


class Scrubber:
    """Where the scrubbing of a log stands."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self._steps: Iterator[Step] | None = None
        self._bytes_done = 0

    def step(self, budget_bytes: int) -> ScrubStep:
        """Verifies what comes next, until `budget_bytes` or a little more were read. Raises as `PartitionLog.scrub`."""
        done = ScrubStep()
        if self._steps is None:
            self._steps, self._bytes_done = verify(self._log), 0
        while done.bytes_read < budget_bytes:
            step = next(self._steps, None)
            if step is None:
                self._steps, done.has_finished = None, True
                return done
            self._take(step, done)
        return done

    def _take(self, step: Step, done: ScrubStep) -> None:
        is_of_rows = step.bytes_done == self._bytes_done and step.damage is None
        done.bytes_read += STEP_ROWS * ROW_BYTES if is_of_rows else step.bytes_done - self._bytes_done
        self._bytes_done = step.bytes_done
        done.bad_rows += step.bad_rows
        if step.bad_rows:
            self._log.mend(step.next_offset)
