"""The leader epochs of a log, from its own batches.

A lineage is the list of (leader epoch, first offset), both strictly increasing (Kafka's leader epoch cache). Replicas
compare their lineages to find where their logs diverge (`tidelog.replication.isr.lineage`).
"""

from __future__ import annotations

Lineage = list[tuple[int, int]]


def epoch_before(lineage: Lineage, offset: int) -> int | None:
    """Returns the leader epoch of the batch that ends at `offset`; None if no batch before it is known."""
    # `<`, not `<=`: at the start of an epoch, the batch before belongs to the epoch before.
    return next((epoch for epoch, start in reversed(lineage) if start < offset), None)


def begin_epoch(lineage: Lineage, epoch: int, offset: int) -> None:
    """Adds an epoch to the lineage, in place, if the batch at `offset` is the first of `epoch`."""
    # Epochs never fall in a log, so an epoch that is not newer has begun already.
    if not lineage or lineage[-1][0] < epoch:
        lineage.append((epoch, offset))
