"""Reads of records that pass many ranges which were given up."""

from __future__ import annotations

import asyncio

from tidelog.broker.partitions.partition_handle import FetchedBatches
from tidelog.broker.routing.json_records import read_records
from tidelog.model.batch_codec import empty_batch
from tidelog.model.lost_ranges import LOST_TOLD_MAX

END = 10 * LOST_TOLD_MAX


class EmptyPartition:
    """A handle of a partition in which given-up offsets and batches without records take turns."""

    async def read(self, offset: int, *, bytes_max: int) -> FetchedBatches:
        is_lost = offset % 2 == 0
        start = offset + is_lost
        data, following = (b"", offset) if offset >= END else (empty_batch(start, start + 1, 0), start + 1)
        return FetchedBatches(data, following, 0, END, END, 0, 1, ((offset, offset + 1),) if is_lost else ())


def test_a_read_passes_no_more_ranges_than_a_header_has_room_for() -> None:
    async def story() -> None:
        partition = EmptyPartition()
        for lost_max in (LOST_TOLD_MAX, 5):
            # `read` is all that it needs of a handle.
            fetched, records = await read_records(partition, 0, 1 << 20, 1 << 20, lost_max=lost_max)  # type: ignore[arg-type]
            assert records == []
            assert list(fetched.lost) == [(offset, offset + 1) for offset in range(0, 2 * lost_max, 2)]
            assert fetched.next_offset == 2 * lost_max

    asyncio.run(story())
