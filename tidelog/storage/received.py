"""Batches as a follower receives them from its leader: placed and stamped already, to be taken as they are.

Each is verified once, by the CRC that its producer computed. Offset and epoch lie outside the CRC; that they go on from
the log's end, and never back, is what is checked of them here.
"""

from __future__ import annotations

from tidelog.model.batch_header import RecordBatch, iter_batches, verify_batch
from tidelog.model.errors import InvalidBatch
from tidelog.model.ports import Buffer

SKIPPED_MAX = (1 << 32) - 1
"""The largest number of offsets between two batches: more does not fit a catalog row."""


def parse_received(payload: Buffer, log_end_offset: int, epoch: int, *, may_skip: bool) -> list[RecordBatch]:
    """Returns the whole batches of a payload that continue a log which ends at `log_end_offset`, with a batch of
    `epoch`.

    Views, not copies. Raises `InvalidBatch`.
    """
    batches: list[RecordBatch] = []
    end = log_end_offset
    for batch in iter_batches(payload):
        # By the producer's CRC. The digest in the catalog is computed from these very bytes afterwards, so a bit that
        # flipped on the wire would be sealed by it for ever.
        header = verify_batch(batch.data)
        skipped = header.base_offset - end
        # Below zero it would write over what is there. Above, an ISR log would have a hole that no batch was ever at.
        if not 0 <= skipped <= (SKIPPED_MAX if may_skip else 0):
            raise InvalidBatch(f"the batch at offset {header.base_offset} does not follow offset {end}")
        # Within a log epochs never fall. One that does comes from a log of another history, or rotted where no checksum
        # covers it.
        if header.leader_epoch < epoch:
            raise InvalidBatch(
                f"the batch at offset {header.base_offset} is of leader epoch {header.leader_epoch}, behind {epoch}"
            )
        batches.append(batch)
        end, epoch = header.next_offset, header.leader_epoch
    return batches
