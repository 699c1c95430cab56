"""Batches that a follower receives from its leader: their offsets and leader epochs are assigned already.

Each is verified once, by the CRC that its producer computed. The CRC covers neither offset nor epoch, so these are
checked to continue the log: each offset follows the last one, and epochs never decrease.
"""

from __future__ import annotations

from tidelog.model.batch_header import RecordBatch, iter_batches, verify_batch
from tidelog.model.errors import InvalidBatch
from tidelog.model.ports import Buffer

SKIPPED_MAX = (1 << 32) - 1
"""The largest number of skipped offsets before a batch: more does not fit its catalog row."""


def parse_received(payload: Buffer, log_end_offset: int, epoch: int, *, may_skip: bool) -> list[RecordBatch]:
    """Returns the complete batches of a payload, checked to continue a log that ends at `log_end_offset` with a batch
    of leader epoch `epoch`. `may_skip` allows gaps between offsets.

    The batches are views of the payload. Raises `InvalidBatch`.
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
