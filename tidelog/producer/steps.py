"""The memory steps of an open batch: it reserves the smallest step that holds its records, and the next one when
needed.

    1 KiB -> 2 KiB -> 4 KiB -> ... -> `batch_size`

Kafka's `BufferPool` hands out whole `batch.size` buffers. Then 512 partitions that are written in turn use up 32 MiB
with one record each. With steps a batch reserves at most twice its records, and 10,000 partitions fit. The first batch
of 64 KiB reserves seven times instead of once; with few partitions, later batches start at the last step.

Pure.
"""

from __future__ import annotations

from typing import Final

FIRST_BYTES: Final = 1 << 10
FACTOR: Final = 2


def step_for(needed_bytes: int, batch_bytes: int) -> int:
    """Returns the smallest step of at least `needed_bytes`; for a record larger than any batch, its own size."""
    step = FIRST_BYTES
    while step < needed_bytes and step < batch_bytes:
        step *= FACTOR
    return max(min(step, batch_bytes), needed_bytes)
