"""The keys by which batches conflict, in a topic whose order is not total (`replication.paxos.releases`).

With `commit.order=key` these are the keys of the records and the idempotent producers, with `none` the producers alone,
each as a hash of 64 bits. A record without a key conflicts with nothing but its producer's other batches. Keys stand in
the records, so a leader has to decode these, as it does for no other topic. Batches that would take long to decode,
that have too many keys, or that cannot be decoded at all, conflict with every other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from xxhash import xxh3_64_intdigest

from tidelog.model.batch_codec import decode_columns
from tidelog.model.batch_header import Compression, RecordBatch
from tidelog.model.cluster import KEY, TOTAL
from tidelog.model.errors import TidelogError
from tidelog.replication.paxos.releases import EVERY_KEY

KEYS_MAX: Final = 64
"""The number of keys from which on a value conflicts with every other."""
RECORDS_MAX: Final = 1_000
COMPRESSED_BYTES_MAX: Final = 32 << 10
DECOMPRESSED_BYTES_MAX: Final = 2 << 20
"""The most records, and bytes before and after decompression, of a batch that is decoded on the event loop."""


def conflict_keys(batches: Sequence[RecordBatch], order: str) -> frozenset[int] | None:
    """Returns the keys of batches that are appended together; None if the order is total."""
    if order == TOTAL:
        return None
    keys: set[int] = set()
    for batch in batches:
        if batch.header.producer_id >= 0:
            keys.add(xxh3_64_intdigest(batch.header.producer_id.to_bytes(8, "big"), seed=1))
        if order == KEY:
            keys.update(_keys_of_records(batch))
    return frozenset(keys) if len(keys) <= KEYS_MAX else frozenset({EVERY_KEY})


def _keys_of_records(batch: RecordBatch) -> Iterator[int]:
    header = batch.header
    is_compressed = header.compression is not Compression.NONE
    if header.record_count > RECORDS_MAX or (is_compressed and header.size > COMPRESSED_BYTES_MAX):
        return iter((EVERY_KEY,))
    try:
        columns = decode_columns(batch, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
    except TidelogError:
        # It is appended as it came, like in any other topic: readers are told.
        return iter((EVERY_KEY,))
    return (xxh3_64_intdigest(key) for key in dict.fromkeys(columns.keys) if key is not None)
