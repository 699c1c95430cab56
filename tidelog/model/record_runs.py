"""Decodes runs of plain records, which most batches consist of, in half the time of the general decoder.

A record is *plain* if it has a value, no headers, no key or a short one, and the next offset, was not made before the
batch's first, and all its varints have one or two bytes. Its *shape* is the number of bytes of four of them: its
length, its timestamp delta, its offset delta and the length of its value. Neighbours are nearly always of one shape. So
one `struct` reads the head of each; a varint of a known size is then an integer, its *code*, which a table maps to the
number, or which is compared with the expected code.

A run ends before the first record of another shape, or a malformed one; `record_decoder` handles that record. It would
have decoded the records of the run to the same result.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from types import MappingProxyType
from typing import Final, NamedTuple

from tidelog.model.varint import VARINT_TABLE_SIZE, VARINTS

_SHORT: Final = 64
"""The smallest number whose varint has two bytes."""
_CONTINUED: Final = 0x80
"""The bit that is set in a byte of a varint if another byte follows."""
_NULL: Final = 1
"""Code of the key length -1: the record has no key."""
_KEY_LENGTH_LIES: Final = _CONTINUED | 1
"""Bits that are all clear in the code of a short key's length: one is set if the length is negative or its varint has
two bytes."""
_NONE: Final = -1
"""Table entry for a number without a code. The tables end with such entries, which negative indexes, the lengths of
malformed records, select."""
_TAIL: Final = (_NONE,) * 256


def _codes(first: int, end: int) -> tuple[int, ...]:
    encoded = (int.from_bytes(varint, "little") for varint in VARINTS[first:end])
    return (_NONE,) * first + tuple(encoded) + (_NONE,) * (VARINT_TABLE_SIZE - end) + _TAIL


def _numbers(codes: Sequence[int]) -> Mapping[int, int]:
    return MappingProxyType({code: number for number, code in enumerate(codes) if code != _NONE})


_CODES = (_codes(0, _SHORT), _codes(_SHORT, VARINT_TABLE_SIZE))
"""Code of each number, by the number: the first table is for varints of one byte, the second for varints of two. Other
numbers have `_NONE`."""
_NUMBERS = tuple(map(_numbers, _CODES))


class _Shape(NamedTuple):
    """The shape of plain records: the `struct` and the tables that read and check records of it."""

    unpack_head: Callable[[bytes, int], tuple[int, ...]]
    head_bytes: int
    length_bytes: int
    lengths: Mapping[int, int]
    times: Mapping[int, int]
    offset_codes: Sequence[int]
    unpack_value_length: Callable[[bytes, int], tuple[int, ...]]
    value_length_bytes: int
    value_codes: Sequence[int]


def _shape(length: int, time: int, offset: int, value: int) -> _Shape:
    """Returns the shape in which each of these varints has one byte (argument 0) or two (argument 1)."""
    head = struct.Struct(f"<{'BH'[length]}x{'BH'[time]}{'BH'[offset]}B{'BH'[value]}")
    value_length = struct.Struct(f"<{'BH'[value]}")
    return _Shape(
        head.unpack_from,
        head.size,
        1 + length,
        _NUMBERS[length],
        _NUMBERS[time],
        _CODES[offset],
        value_length.unpack_from,
        value_length.size,
        _CODES[value],
    )


_SHAPES = MappingProxyType({widths: _shape(*widths) for widths in product((0, 1), repeat=4)})


def decode_run(
    data: bytes,
    position: int,
    delta: int,
    count: int,
    base_timestamp: int,
    timestamps_ms: list[int],
    keys: list[bytes | None],
    values: list[bytes | None],
) -> tuple[int, int]:
    """Decodes up to `count` plain records at `position`, as long as they have the shape of the first and offset deltas
    that count up from `delta`. Returns the position of the record after them, and the next offset delta.

    Timestamps and values are appended to their lists; `keys` has room for all.
    """
    record = len(values) - delta
    latest, timestamp = _NONE, base_timestamp
    add_timestamp, add_value = timestamps_ms.append, values.append
    try:
        shape = _shape_at(data, position)
        unpack, head_bytes, length_bytes, lengths, times, offset_codes, unpack_value, value_bytes, value_codes = shape
        for due in range(delta, delta + count):
            length, time, offset, key, value = unpack(data, position)
            start = position + head_bytes
            end = position + length_bytes + lengths[length] - 1
            if offset != offset_codes[due]:
                break
            if key != _NULL:
                if key & _KEY_LENGTH_LIES:
                    break
                start += key >> 1
                (value,) = unpack_value(data, start - value_bytes)
            if value != value_codes[end - start] or data[end]:
                break
            if time != latest:
                timestamp = base_timestamp + times[time]
                latest = time
            if key != _NULL:
                keys[record + due] = data[position + head_bytes - value_bytes : start - value_bytes]
            add_timestamp(timestamp)
            add_value(data[start:end])
            position = end + 1
    except (LookupError, struct.error):  # a number that is in no table, or the data's end
        pass
    return position, len(values) - record


def _shape_at(data: bytes, position: int) -> _Shape:
    """Returns the shape that the record at `position` has if it is plain. Raises `IndexError` if the data ends too
    early."""
    length = data[position] >> 7
    at = position + length + 2
    time = data[at] >> 7
    at += time + 1
    offset = data[at] >> 7
    at += offset + 1
    key = data[at]
    at += 1 if key & 1 else 1 + (key >> 1)
    return _SHAPES[length, time, offset, data[at] >> 7]
