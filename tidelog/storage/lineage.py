"""The leader epochs of a log's offsets, as the log itself can tell.

A lineage is the list of (leader epoch, first offset), both strictly increasing: what replicas compare whose logs have
parted. The comparing is theirs (`tidelog.replication.isr.lineage`).
"""

from __future__ import annotations

Lineage = list[tuple[int, int]]


def epoch_before(lineage: Lineage, offset: int) -> int | None:
    """Returns the epoch of the batch that ends at `offset`; None if nothing is known to lie before it."""
    # `<`, not `<=`: at the start of an epoch, the batch before belongs to the epoch before.
    return next((epoch for epoch, start in reversed(lineage) if start < offset), None)


def begin_epoch(lineage: Lineage, epoch: int, offset: int) -> None:
    """Notes in place that a batch of `epoch` is written at `offset`."""
    # Epochs never fall in a log, so an epoch that is not newer has begun already.
    if not lineage or lineage[-1][0] < epoch:
        lineage.append((epoch, offset))
