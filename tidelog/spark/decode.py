"""Conversion of a range's bytes to the Arrow batches for Spark: at most 10,000 rows and some megabytes each.

Spark converts each Arrow batch to rows at once; beyond some 8 MB that gets slower. The decompressed size is only known
afterwards, so a batch is sliced then, without copying.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from tidelog.model.arrow import decode_to_arrow
from tidelog.model.ports import Buffer
from tidelog.spark.planner import OffsetRange

ROWS_MAX = 10_000
BYTES_MAX = 8 << 20


def decode_piece(piece: Buffer, offset_range: OffsetRange, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yields the records of the piece that lie in the range, as Arrow batches. Raises `InvalidRequest` for an unknown
    column, `InvalidBatch` for damaged bytes, `TooLarge` if the records decompress to more than an Arrow batch may
    have."""
    batch = decode_to_arrow(
        piece,
        offset_range.topic,
        offset_range.partition,
        columns=columns,
        start=offset_range.start,
        end=offset_range.end,
    )
    yield from slices(batch)


def slices(batch: pa.RecordBatch, rows_max: int = ROWS_MAX, bytes_max: int = BYTES_MAX) -> Iterator[pa.RecordBatch]:
    """Yields slices of the batch within the limits, in order; a single row may exceed them. No slice is empty."""
    if batch.num_rows == 0:
        return
    if batch.num_rows == 1 or (batch.num_rows <= rows_max and batch.nbytes <= bytes_max):
        yield batch
        return
    parts = max(-(-batch.num_rows // rows_max), min(batch.num_rows, -(-batch.nbytes // bytes_max)))
    rows = -(-batch.num_rows // parts)
    for start in range(0, batch.num_rows, rows):
        part = batch.slice(start, rows)
        if part.num_rows > 1 and part.nbytes > 2 * bytes_max:
            yield from slices(part, rows_max, bytes_max)  # its rows are larger than the others'
        else:
            yield part
