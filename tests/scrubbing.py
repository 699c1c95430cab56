"""Scrubs one piece of a log, in the order in which a broker does it (`broker/repair/scrub_targets.py`)."""

from __future__ import annotations

from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.scrub import ScrubStep


def scrub_piece(log: PartitionLog, budget_bytes: int) -> ScrubStep:
    """Verifies the next `budget_bytes` or so of the log; after the end it begins again. Damage is added to
    `damaged_ranges`; damaged catalog rows are written again. Raises `OSError` if such a write fails (the log is offline
    then), or `Overloaded`."""
    piece = log.scrubber.begin(budget_bytes)
    if piece is None:
        return ScrubStep(has_finished=True)
    piece.run()
    # Read once more before it is believed: the log may have been truncated under the reader.
    step = log.scrubber.end(piece)
    if step.mend_at is not None:
        # First: `mend` would say of a damaged checkpoint that there is none, and only memory still knows what it said.
        log.renew_checkpoint()
        log.mend(step.mend_at)
    return step
