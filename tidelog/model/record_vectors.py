"""Locates records with numpy: the positions of every key, value and header, for all records of many batches at once.

Only one thing about a batch is sequential: a record starts where the one before it ends. So the lengths are followed in
Python, one small step per record; everything else is numpy over all records together: the first varint of every record,
then the second of every record, and so on.

It checks every number against the bytes, as `record_decoder` does, but does not parse headers. Needs numpy (the `spark`
extra); only `arrow` imports it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tidelog.model.batch_header import TIMESTAMP_DELTA_MS_MAX, BatchHeader
from tidelog.model.errors import InvalidBatch
from tidelog.model.ports import Buffer
from tidelog.model.varint import decode_folded

Ints = npt.NDArray[np.int64]
_Octets = npt.NDArray[np.uint8]


class RecordSpan(NamedTuple):
    """The header of a batch, and the start and end position of its decompressed records in a buffer."""

    header: BatchHeader
    start: int
    end: int


class Fields(NamedTuple):
    """The keys, or the values, of all records: their start positions, and their sizes in bytes; -1 is null."""

    starts: Ints
    sizes: Ints


@dataclass(frozen=True, slots=True)
class RecordVectors:
    """The records of many batches as columns with one element per record, in the order of the spans and of their
    records."""

    offsets: Ints
    timestamps_ms: Ints
    timestamp_types: Ints  # 1 is log-append time
    keys: Fields
    values: Fields
    headers: Ints  # where the header count is; the headers fill the record up to its end
    ends: Ints


def read_vectors(data: Buffer, spans: Sequence[RecordSpan]) -> RecordVectors:
    """Reads all records of the spans. Raises `InvalidBatch` if their bytes contradict the headers."""
    octets = np.frombuffer(data, np.uint8)
    ends = _walk(data, spans)
    spans = [span for span in spans if span.header.record_count]
    counts = np.array([span.header.record_count for span in spans], np.int64)
    firsts = np.cumsum(counts) - counts
    starts = np.empty_like(ends)
    starts[1:] = ends[:-1]
    starts[firsts] = [span.start for span in spans]
    try:
        sizes, position = _varints(octets, starts)
        _require(position + sizes == ends, "a record of negative length")
        time_deltas, position = _varints(octets, position + 1)  # after the attributes, which have no meaning yet
        offset_deltas, position = _varints(octets, position)
        keys, position = _fields(octets, position, ends)
        values, position = _fields(octets, position, ends)
        no_headers = octets[position] == 0
    except IndexError:
        raise InvalidBatch("the batches end within a record") from None
    _require(position < ends, "a record's length is not the sum of its parts")
    _require(no_headers == (position + 1 == ends), "a record's length is not the sum of its parts")

    def spread(numbers: list[int]) -> Ints:
        return np.repeat(np.array(numbers, np.int64), counts)

    headers = [span.header for span in spans]
    _check_order(offset_deltas, spread([header.last_offset_delta for header in headers]), firsts)
    _require(np.abs(time_deltas).view(np.uint64) <= TIMESTAMP_DELTA_MS_MAX, "a timestamp out of range")
    timestamps = spread([header.base_timestamp for header in headers]) + time_deltas
    types = spread([int(header.is_log_append_time) for header in headers])
    return RecordVectors(
        offsets=spread([header.base_offset for header in headers]) + offset_deltas,
        timestamps_ms=np.where(types == 1, spread([header.max_timestamp for header in headers]), timestamps),
        timestamp_types=types,
        keys=keys,
        values=values,
        headers=position,
        ends=ends,
    )


def _check_order(offset_deltas: Ints, last_offset_deltas: Ints, firsts: Ints) -> None:
    """Raises `InvalidBatch` unless offsets rise within each batch and stay inside it; compaction leaves gaps."""
    _require((offset_deltas >= 0) & (offset_deltas <= last_offset_deltas), "a record's offset lies outside its batch")
    rises = np.empty(len(offset_deltas), np.bool_)
    rises[1:] = offset_deltas[1:] > offset_deltas[:-1]
    rises[firsts] = True
    _require(rises, "a record's offset is not after the one before it")


def _walk(data: Buffer, spans: Sequence[RecordSpan]) -> Ints:
    """Returns the position at which each record ends. Every step goes forward, and the last one must meet the end of
    its span. The caller checks that no length was negative."""
    ends: list[int] = []
    add = ends.append
    for span in spans:
        position = span.start
        try:
            for _ in range(span.header.record_count):
                low = data[position]
                if low < 0x80:
                    position += (low >> 1) + 1
                else:
                    high = data[position + 1]
                    if high < 0x80:
                        position += (low >> 1) + (high << 6) - 62  # the two bytes, less the 64 of low's top bit
                    else:
                        folded, position = decode_folded(data, position)
                        position += folded >> 1
                add(position)
        except IndexError:
            raise InvalidBatch(f"the batch at offset {span.header.base_offset} ends within a record") from None
        if position != span.end:
            raise InvalidBatch(f"the records of the batch at offset {span.header.base_offset} do not end with it")
    return np.array(ends, np.int64)


def _varints(octets: _Octets, position: Ints) -> tuple[Ints, Ints]:
    """Returns the zigzag varints at all positions, and the positions after them."""
    byte = octets[position]
    folded = (byte & 0x7F).astype(np.uint64)
    position = position + 1
    longer = np.flatnonzero(byte > 0x7F)
    shift = 7
    while len(longer):
        byte = octets[position[longer]]
        _require((shift < 63) | (byte <= 1), "a varint of more than 64 bits")
        folded[longer] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        position[longer] += 1
        longer = longer[byte > 0x7F]
        shift += 7
    return (folded >> np.uint64(1)).view(np.int64) ^ -(folded & np.uint64(1)).view(np.int64), position


def _fields(octets: _Octets, position: Ints, ends: Ints) -> tuple[Fields, Ints]:
    """Returns the keys, or the values, whose sizes are at `position`, and the positions after them."""
    sizes, starts = _varints(octets, position)
    _require((sizes >= -1) & (sizes <= ends - starts), "a key or value that its record cannot hold")
    return Fields(starts, sizes), starts + np.maximum(sizes, 0)


def _require(holds: npt.NDArray[np.bool_], otherwise: str) -> None:
    if not holds.all():
        raise InvalidBatch(otherwise)
