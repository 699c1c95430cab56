"""Reading what is committed out of a log, whoever holds it: the leader's own side and a follower's copy alike."""

from __future__ import annotations

from tidelog.model.batch_codec import decode_batch
from tidelog.model.batch_header import iter_batches
from tidelog.storage.partition_log import PartitionLog

LOOKUP_BYTES = 1 << 20


def has_bytes(log: PartitionLog, offset: int, bytes_min: int, high_watermark: int) -> bool:
    """True if a read at `offset` that waits for `bytes_min` has nothing to wait for; an error is not waited for."""
    if offset < log.log_start_offset:
        return True
    if offset >= high_watermark:
        return False
    return bytes_min <= 1 or log.has_bytes(offset, bytes_min, high_watermark)


def first_since(log: PartitionLog, timestamp_ms: int, high_watermark: int) -> tuple[int, int] | None:
    """(offset, timestamp) of the first committed record of that timestamp or later. Raises `DamagedBatch`."""
    extent = log.batch_since(timestamp_ms, high_watermark)
    while extent is not None and extent.data:
        for batch in iter_batches(extent.data):
            for record in decode_batch(batch):
                if record.timestamp_ms >= timestamp_ms and record.offset >= log.log_start_offset:
                    return record.offset, record.timestamp_ms
        extent = log.read(extent.next_offset, LOOKUP_BYTES, high_watermark)
    return None
