"""How a batch that is written twice is appended once.

Spark repeats writes: a task that failed, a task that was slow, a micro-batch whose end did not reach the checkpoint.
What is repeated is known by *where it belongs*: the query, its batch, the task, and of that task's records for a topic
partition the number of the chunk. Of these a producer id is made, one for each chunk, as brokers make one of an
`Idempotency-Key`; and of the chunk's *content* its first sequence. The partition's log remembers both:

    same position, same content     appended before: the broker answers as it did then, and appends nothing
    same position, other content    refused (42209): Spark computed other rows the second time

The second row is why the content counts. Rows that come out of a shuffle may come in another order when they are
computed again; skipping the first hundred rows because a hundred were written would lose some and repeat others.

*Attempts that end too early.* When the computation before a sink fails, the sink's input just ends: Spark tells it the
failure in no other way than by ending the task. What looks like the last chunk is then the beginning of one. It ends
where one of Spark's Arrow batches does, though, and those are cut the same way each time (`Chunk.cuts`). So whoever is
refused a chunk asks for its beginnings, by writing them again under the same identity: the one that is there is
confirmed, others are refused and append nothing. What follows it is then a chunk with an identity of its own.

The content is keys, values and headers, not timestamps: a sink makes those itself, from the clock, unless it is told
to keep the rows' own. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import xxhash

from tidelog.model.ids import KEYED_PRODUCER_BIT, ProducerId
from tidelog.model.records import Header

Row = tuple[int, bytes | None, bytes | None, Sequence[Header]]
"""Timestamp (ms), key, value, headers."""

FINGERPRINT_BITS = 31


def chunk_producer(scope: str, topic_id: str, partition: int, position: str) -> ProducerId:
    """The identity of the chunk at this position; `scope` says of which task of which write."""
    digest = xxhash.xxh3_64_intdigest(f"{scope}/{topic_id}/{partition}/{position}".encode())
    return ProducerId(digest & (KEYED_PRODUCER_BIT - 1) | KEYED_PRODUCER_BIT)


def fingerprint(rows: Sequence[Row]) -> int:
    """Of the content of a chunk, as a first sequence."""
    content = msgspec.msgpack.encode([row[1:] for row in rows])
    return xxhash.xxh3_64_intdigest(content) >> (64 - FINGERPRINT_BITS)
