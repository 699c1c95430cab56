"""What a log's catalogs say of the past: the lineage of leader epochs, and the producers' trails.

Both are digests of the rows. Each segment opens with a checkpoint of them, so only the newest segment whose checkpoint
is sound, and the rows behind it, need to be read; a damaged checkpoint costs the reading of one more segment.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.model.producers import ProducerState, ProducerTable
from tidelog.storage.rows import ROW_BYTES, RowCodec
from tidelog.storage.segment import Damage, Segment

Lineage = list[tuple[int, int]]


def read_trails(
    codec: RowCodec, segments: Sequence[Segment], producers_max: int, now_ms: int
) -> tuple[Lineage, ProducerTable]:
    """The lineage and the producer table at the end of `segments`.

    Producers seen in rows count as heard now: remembering one for longer than configured is harmless.
    """
    lineage: Lineage = []
    producers = ProducerTable(producers_max)
    first = len(segments) - 1
    while first > 0 and not _restore(codec, segments[first], lineage, producers):
        first -= 1
    if first == 0:
        _restore(codec, segments[0], lineage, producers)
    for segment in segments[first:]:
        _follow(segment, lineage, producers, now_ms)
    return lineage, producers


def _restore(codec: RowCodec, segment: Segment, lineage: Lineage, producers: ProducerTable) -> bool:
    """Takes in a segment's checkpoint; False, with nothing taken, if it is damaged."""
    header = codec.parse_header(segment.raw_rows(0, 1))
    if header is None or not header.has_checkpoint:
        return False
    raw = segment.raw_rows(1, header.checkpoint_rows)
    parsed = [codec.parse_checkpoint(raw[at : at + ROW_BYTES]) for at in range(0, len(raw), ROW_BYTES)]
    epochs: Lineage = []
    states: list[tuple[int, ProducerState]] = []
    for item in parsed:
        if item is None:
            return False
        key, value = item
        if isinstance(value, ProducerState):
            states.append((key, value))
        else:
            epochs.append((key, value))
    if len(parsed) != header.checkpoint_rows:
        return False
    lineage[:] = epochs
    producers.restore(states)
    return True


def _follow(segment: Segment, lineage: Lineage, producers: ProducerTable, now_ms: int) -> None:
    for row in segment.entries(segment.base_offset):
        if isinstance(row, Damage):
            continue
        if not lineage or lineage[-1][0] < row.epoch:
            lineage.append((row.epoch, row.base_offset))
        if row.producer_id >= 0:
            producers.remember(
                row.producer_id,
                row.producer_epoch,
                row.base_sequence,
                row.last_offset_delta + 1,
                row.base_offset,
                now_ms,
            )
