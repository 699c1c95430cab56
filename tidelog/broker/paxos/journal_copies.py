"""Whole copies of a log's damaged batches, taken from the journal of the same replica.

Journal and log both hold every batch, in different files, until the journal's head is truncated. So a batch that rots
in the log is often whole in the journal, here or at another replica. A batch requested by its digest is taken from any
value that holds it, chosen or not, since the digest proves it. A batch requested by its offset alone is taken only from
a value that is applied and not void: only such a value fills these offsets on all replicas.

The log's row names the position at which its batch was agreed on.
"""

from __future__ import annotations

from collections.abc import Iterator

from xxhash import xxh3_128_digest

from tidelog.broker.consensus.engine import Engine
from tidelog.model.batch_header import RecordBatch, iter_batches
from tidelog.replication.paxos.apply import fold_to, is_void
from tidelog.replication.paxos.replica import Replica
from tidelog.replication.paxos.state import Kind, Slot
from tidelog.storage.copies import Identity
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.rows import Row


def find_in_journal(engine: Engine, log: PartitionLog, identity: Identity) -> bytes | None:
    """Returns the damaged batch `identity` of the log from the journal's slots; None if no slot holds it whole. Raises
    `Overloaded`."""
    replica = engine.node.replica
    for slot in _slots_of(replica, log, identity.offset):
        # Without a digest only a value in force is sure to fill these offsets on all replicas.
        if not identity.is_known and not _is_in_force(replica, slot):
            continue
        payload = engine.buffer_of(slot.position, slot.value)
        for batch in () if payload is None else iter_batches(payload):
            if _matches(batch, identity):
                return bytes(batch.data)
    return None


def _slots_of(replica: Replica, log: PartitionLog, offset: int) -> Iterator[Slot]:
    """Yields the journal slots whose values cover this offset."""
    row = next(log.entries(offset), None)
    is_placed = isinstance(row, Row) and row.number > 0 and row.base_offset <= offset
    # Where the row is lost, or its batch was copied from another log, no position is named: all slots are looked
    # through.
    positions = (row.position,) if is_placed and isinstance(row, Row) else tuple(replica.slots)
    for position in positions:
        slot = replica.slots.get(position)
        if slot is not None and slot.value.kind is Kind.APPEND:
            base_offset = slot.value.base_offset
            if base_offset <= offset < base_offset + slot.value.count:
                yield slot


def _is_in_force(replica: Replica, slot: Slot) -> bool:
    """Returns True if the slot's value is applied, and not void."""
    if slot.position >= replica.applied.position:
        return False
    return not is_void(fold_to(replica.floor, replica.slots, slot.position), slot.value)


def _matches(batch: RecordBatch, identity: Identity) -> bool:
    if identity.is_known:
        return batch.header.base_offset == identity.offset and xxh3_128_digest(batch.data) == identity.digest
    return batch.header.base_offset <= identity.offset < batch.header.next_offset
