"""Which leader epoch wrote which offsets of a log, and the one question that replicas ask about it.

A lineage is the list of (leader epoch, first offset), both strictly increasing. Two replicas whose logs parted compare
lineages, never high watermarks: the last epoch that both know, and where it ends, tells how far they are alike
(KIP-101, and KIP-279 for epochs that only one of them knows).
"""

from __future__ import annotations

from typing import NamedTuple

Lineage = list[tuple[int, int]]


class EpochEnd(NamedTuple):
    """The newest epoch that is not newer than the one asked about, and the offset behind its last batch."""

    epoch: int
    end_offset: int


def end_offset_of(lineage: Lineage, epoch: int, log_end_offset: int) -> EpochEnd | None:
    """Where `epoch` ends in a log with this lineage (Kafka's OffsetsForLeaderEpoch).

    Of the newest epoch, the log's end. Of an epoch that this log never saw, the end of the one before it; if there is
    none before it, (`epoch`, where the first one starts). None if `epoch` is newer than all: nothing is known of it.
    """
    if not lineage or epoch > lineage[-1][0]:
        return None
    if epoch == lineage[-1][0]:
        return EpochEnd(epoch, log_end_offset)
    floor = epoch
    for known, start in lineage:
        if known > epoch:
            return EpochEnd(floor, start)
        floor = known
    raise AssertionError("the newest epoch is above the one asked about")


def epoch_before(lineage: Lineage, offset: int) -> int | None:
    """The epoch of the batch that ends at `offset`; None if nothing is known to lie before it."""
    return next((epoch for epoch, start in reversed(lineage) if start < offset), None)


def begin_epoch(lineage: Lineage, epoch: int, offset: int) -> None:
    """Notes in place that `epoch` writes from `offset` on, if that is news. Epochs that were to begin there or behind,
    or are not older, never wrote anything that is in the log, and go."""
    while lineage and (lineage[-1][1] >= offset or lineage[-1][0] > epoch):
        lineage.pop()
    if not lineage or lineage[-1][0] < epoch:
        lineage.append((epoch, offset))
