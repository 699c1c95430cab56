"""Reading committed records from a log, at the leader or from a follower's copy."""

from __future__ import annotations

import asyncio

from tidelog.broker.runtime.purgatory import Purgatory, Watchers
from tidelog.model.batch_codec import decode_batch, empty_batch
from tidelog.model.batch_header import RecordBatch, iter_batches, parse_header
from tidelog.storage.log_reader import FILLER_OFFSETS_MAX, PassingRead
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.segment import Damage

LOOKUP_BYTES = 1 << 20
REPAIR_S_MAX = 1.0
"""Seconds that a read waits for the repair of the batch it needs. A repair takes a request to another broker and an
fsync; a reader that gets "damaged" after this time tries again, so a longer wait gains nothing."""


async def read_when_repaired(
    log: PartitionLog, watchers: Watchers, purgatory: Purgatory, offset: int, bytes_max: int, high_watermark: int
) -> PassingRead:
    """Reads a damaged offset as `PartitionLog.read_passing` does, after waiting up to `REPAIR_S_MAX` until it is
    repaired or given up. `watchers` are woken after a repair. Raises `OffsetOutOfRange`, `Overloaded`, or
    `DamagedBatch` if the batch is damaged still."""

    def is_repaired() -> bool:
        at = log.damage.lost.past(offset)
        return all(not damage.start <= at < damage.end for damage in log.damaged_ranges())

    deadline_s = asyncio.get_running_loop().time() + REPAIR_S_MAX
    await purgatory.wait([watchers], is_repaired, deadline_s)
    return log.read_passing(offset, bytes_max, high_watermark)


def has_bytes(log: PartitionLog, offset: int, bytes_min: int, high_watermark: int) -> bool:
    """Returns True if a read at `offset` need not wait for `bytes_min` committed bytes: they are there, or it would
    raise an error."""
    if offset < log.log_start_offset:
        return True
    if offset >= high_watermark:
        return False
    return log.has_bytes_passing(offset, bytes_min, high_watermark)


def bytes_from(log: PartitionLog, offset: int, high_watermark: int) -> int:
    """Returns how many bytes of undamaged batches lie between `offset` and the high watermark."""
    size = 0
    for entry in log.entries(offset) if offset < high_watermark else ():
        if isinstance(entry, Damage) or entry.next_offset > high_watermark:
            break
        size += entry.length
    return size


def first_since(log: PartitionLog, timestamp_ms: int, high_watermark: int) -> tuple[int, int] | None:
    """Returns (offset, timestamp) of the first committed record of that timestamp (ms) or later; None if there is none.
    Raises `DamagedBatch`."""
    extent = log.batch_since(timestamp_ms, high_watermark)
    while extent is not None and extent.data:
        for batch in iter_batches(extent.data):
            for record in decode_batch(batch):
                if record.timestamp_ms >= timestamp_ms and record.offset >= log.log_start_offset:
                    return record.offset, record.timestamp_ms
        extent = log.read_passing(extent.next_offset, LOOKUP_BYTES, high_watermark).extent
    return None


def fill_lost_end(log: PartitionLog, leader_epoch: int, now_ms: int) -> None:
    """Appends batches without records until the log ends behind all offsets that an operator has given up. A replica
    without those offsets that becomes leader would otherwise give them to new records, which no reader would get.
    Raises `DiskFull`, `Overloaded`, `LogOffline` or `InternalError`."""
    # A batch across the edge of a range would be shown to nobody, and readers would not come past it.
    edges = [edge for lost in log.damage.lost for edge in lost]
    while edges and log.log_end_offset < edges[-1]:
        following = next(edge for edge in edges if edge > log.log_end_offset)
        stop = min(following, log.log_end_offset + FILLER_OFFSETS_MAX)
        data = empty_batch(log.log_end_offset, stop, leader_epoch)
        log.append([RecordBatch(parse_header(data), memoryview(data))], now_ms)
