"""Questions about many partitions at once, asked as few times as possible."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.broker.partition import Partition
from tidelog.broker.partition_handle import PartitionHandle
from tidelog.broker.purgatory import Purgatory


async def wait_for_change(
    known: Sequence[tuple[PartitionHandle, int]], purgatory: Purgatory, deadline_s: float
) -> None:
    """Returns when the high watermark of any of these partitions is not the one that came with it, or at the deadline
    (loop time). Raises `Overloaded` if too many wait already."""
    local = [(partition, end) for partition, end in known if isinstance(partition, Partition)]
    await purgatory.wait(
        [partition.watchers for partition, _ in local],
        lambda: any(partition.high_watermark != end for partition, end in local),
        deadline_s,
    )
