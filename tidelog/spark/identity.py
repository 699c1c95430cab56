"""Idempotent writes: a batch that Spark writes twice is appended once.

Spark repeats writes: failed tasks, slow tasks, micro-batches whose end did not reach the checkpoint. A repeated chunk
is recognised by its *position*: the query, its batch, the task, the topic partition, and the chunk's number. A producer
id is derived from these, one per chunk, as brokers derive one from an `Idempotency-Key`; the first sequence number is
derived from the chunk's *content*. The partition's log remembers both:

    same position, same content     duplicate: the broker repeats its response, and appends nothing
    same position, other content    rejected (42209): Spark computed other rows the second time

The second case is why the content counts. Rows after a shuffle may have another order when computed again; skipping the
first hundred rows because a hundred were written would lose some and duplicate others.

*Attempts that end too early.* When the computation before a sink fails, the sink's input just ends; Spark reports the
failure only by ending the task. The apparent last chunk is then the beginning of a chunk. It ends where one of Spark's
Arrow batches ends, and those are cut the same way each time (`Chunk.cuts`). So a writer whose chunk is rejected writes
the beginnings of the chunk again under the same identity: the one in the log is confirmed, others are rejected. The
remaining rows become a chunk with its own identity.

The content is keys, values and headers, without timestamps: a sink takes those from the clock, unless it is configured
to keep the rows' own. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import xxhash

from tidelog.model.ids import KEYED_PRODUCER_BIT, ProducerId
from tidelog.model.records import Header

Row = tuple[int, bytes | None, bytes | None, Sequence[Header]]
"""A row: timestamp (ms), key, value, headers."""

FINGERPRINT_BITS = 31


def chunk_producer(scope: str, topic_id: str, partition: int, position: str) -> ProducerId:
    """Returns the producer id of the chunk at this position; `scope` identifies the write and its task."""
    digest = xxhash.xxh3_64_intdigest(f"{scope}/{topic_id}/{partition}/{position}".encode())
    return ProducerId(digest & (KEYED_PRODUCER_BIT - 1) | KEYED_PRODUCER_BIT)


def fingerprint(rows: Sequence[Row]) -> int:
    """Returns a hash of a chunk's content, as a first sequence number."""
    content = msgspec.msgpack.encode([row[1:] for row in rows])
    return xxhash.xxh3_64_intdigest(content) >> (64 - FINGERPRINT_BITS)
