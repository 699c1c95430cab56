"""Reading what is committed out of a log, whoever holds it: the leader's own side and a follower's copy alike."""

from __future__ import annotations

import asyncio
from typing import Protocol

from tidelog.broker.runtime.purgatory import Purgatory, Watchers
from tidelog.model.batch_codec import decode_batch
from tidelog.model.batch_header import iter_batches
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.segment import Extent

LOOKUP_BYTES = 1 << 20
REPAIR_S_MAX = 1.0
"""How long a read waits for the repair of what it came for. A repair takes a question to another broker and an fsync;
whoever is told "damaged" after this time asks again, so nothing is gained by waiting for longer."""


class Damageable(Protocol):
    """A replica here. `watchers` are woken when something is repaired."""

    log: PartitionLog
    watchers: Watchers


async def read_when_repaired(
    replica: Damageable, purgatory: Purgatory, offset: int, bytes_max: int, high_watermark: int
) -> Extent:
    """`PartitionLog.read` at a damaged offset, once it is repaired. Raises as that, and `Overloaded`."""
    log = replica.log

    def is_repaired() -> bool:
        return all(not damage.start <= offset < damage.end for damage in log.damaged_ranges())

    deadline_s = asyncio.get_running_loop().time() + REPAIR_S_MAX
    await purgatory.wait([replica.watchers], is_repaired, deadline_s)
    return log.read(offset, bytes_max, high_watermark)


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
