"""The history of a log from its catalogs: the leader epochs (lineage), and the producers' last batches.

Each segment begins with a checkpoint of both, so only the newest segment with a sound checkpoint, and the rows behind
the checkpoint, need to be read; for a damaged checkpoint one more segment is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.model.ids import OFFSET_MAX
from tidelog.model.producers import ProducerState, ProducerTable
from tidelog.storage.lineage import Lineage, begin_epoch
from tidelog.storage.rows import ROW_BYTES, RowCodec
from tidelog.storage.segment import Damage, Segment


class Trails(NamedTuple):
    lineage: Lineage
    producers: ProducerTable
    first: int
    """Index of the oldest segment that was read: the last one, unless its checkpoint is damaged."""
    has_checkpoint: bool
    """False if no segment has a sound checkpoint, so that the history of deleted segments is missing."""


class Checkpoint(NamedTuple):
    """The leader epochs and the producers' states as of a segment's start, from all segments before it."""

    lineage: Lineage
    producers: list[tuple[int, ProducerState]]


def read_trails(
    codec: RowCodec, segments: Sequence[Segment], producers_max: int, now_ms: int, *, end_offset: int = OFFSET_MAX
) -> Trails:
    """Reads the lineage (leader epochs) and the producers' states at the end of `segments`, or at `end_offset`, which
    lies in the last of them.

    Producers found in rows count as seen at `now_ms`: to remember one for longer than configured does no harm.
    """
    first = len(segments) - 1
    # Backwards to the newest sound checkpoint: it has all that came before, so no older segment is needed.
    while (checkpoint := read_checkpoint(codec, segments[first])) is None and first > 0:
        first -= 1
    lineage = checkpoint.lineage if checkpoint else []
    producers = ProducerTable(producers_max)
    producers.restore(checkpoint.producers if checkpoint else [])
    for segment in segments[first:]:
        _follow(segment, lineage, producers, now_ms, end_offset)
    return Trails(lineage, producers, first, checkpoint is not None)


def read_checkpoint(codec: RowCodec, segment: Segment) -> Checkpoint | None:
    """Reads a segment's checkpoint; None if any of it is damaged, or it has none."""
    header = codec.parse_header(segment.raw_rows(0, 1))
    # A header that was made again without its checkpoint says so. An empty checkpoint would say that nothing came
    # before.
    if header is None or not header.has_checkpoint:
        return None
    raw = segment.raw_rows(1, header.checkpoint_rows)
    # All or nothing: with one LINEAGE row missing, replicas would compare epochs with a log that never was.
    if len(raw) < header.checkpoint_rows * ROW_BYTES:
        return None
    checkpoint = Checkpoint([], [])
    for position in range(0, len(raw), ROW_BYTES):
        item = codec.parse_checkpoint(raw[position : position + ROW_BYTES])
        if item is None:
            return None
        key, value = item
        if isinstance(value, ProducerState):
            checkpoint.producers.append((key, value))
        else:
            checkpoint.lineage.append((key, value))
    return checkpoint


def _follow(segment: Segment, lineage: Lineage, producers: ProducerTable, now_ms: int, end_offset: int) -> None:
    for row in segment.entries(segment.base_offset):
        # What has lost its row says nothing of its producer, so a repeat of it is not known for one.
        if isinstance(row, Damage):
            continue
        if row.base_offset >= end_offset:
            break
        begin_epoch(lineage, row.epoch, row.base_offset)
        if row.producer_id >= 0:
            # As heard now, for rows have no time of arrival: a producer is remembered for too long rather than too
            # short.
            producers.remember(
                row.producer_id,
                row.producer_epoch,
                row.base_sequence,
                row.last_offset_delta + 1,
                row.base_offset,
                now_ms,
            )
