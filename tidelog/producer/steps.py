"""How much memory an open batch holds: a step that its records fit in, and the next one when they do not.

    1 KiB -> 2 KiB -> 4 KiB -> ... -> `batch_size`

Kafka's `BufferPool` hands out `batch.size` whole. Then 512 partitions that are written to in turn use up 32 MiB with a
record each. With steps a batch holds at most twice its records, and 10,000 partitions fit. The first batch of 64 KiB
asks seven times instead of once; where partitions are few, those after it begin where it ended.

Pure.
"""

from __future__ import annotations

from typing import Final

FIRST_BYTES: Final = 1 << 10
FACTOR: Final = 2


def step_for(needed_bytes: int, batch_bytes: int) -> int:
    """Returns the smallest step that holds so many bytes; a record that is larger than any batch has one of its
    size."""
    step = FIRST_BYTES
    while step < needed_bytes and step < batch_bytes:
        step *= FACTOR
    return max(min(step, batch_bytes), needed_bytes)
