"""Zigzag varints, the integers inside a batch: seven bits a byte, low bits first, small magnitudes short.

Zigzag folds the sign into the lowest bit (0, -1, 1, -2 become 0, 1, 2, 3), as in Protocol Buffers and Kafka's
`ByteUtils`. "Folded" names the number before the sign is taken out again.
"""

from __future__ import annotations

from tidelog.model.errors import InvalidBatch
from tidelog.model.ports import Buffer

VARINT_BITS_MAX = 64

VARINT_TABLE_SIZE = 8192
"""Zigzag varints of 0 to 8191 have one or two bytes; nearly all lengths and deltas of a batch are among them."""


def encode_varint(value: int) -> bytes:
    """Returns the zigzag varint of an int64, in 1 to 10 bytes."""
    folded = (value << 1) ^ (value >> 63)
    out = bytearray()
    while folded > 0x7F:
        out.append((folded & 0x7F) | 0x80)
        folded >>= 7
    out.append(folded)
    return bytes(out)


def decode_varint(buffer: bytes, position: int) -> tuple[int, int]:
    """Returns the zigzag varint at `position`, and the position after it. Raises `InvalidBatch` if it has more than 64
    bits, `IndexError` if the buffer ends within it."""
    folded, position = decode_folded(buffer, position)
    return (folded >> 1) ^ -(folded & 1), position


def decode_folded(buffer: Buffer, position: int) -> tuple[int, int]:
    """Returns the number at `position` with its sign still in bit 0, and the position after it.

    Raises `InvalidBatch` if it has more than 64 bits; `IndexError` if the buffer ends within it.
    """
    folded = shift = 0
    while shift < VARINT_BITS_MAX:
        byte = buffer[position]
        position += 1
        folded |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    if shift >= VARINT_BITS_MAX or folded >> VARINT_BITS_MAX:
        raise InvalidBatch(f"a varint of more than {VARINT_BITS_MAX} bits")
    return folded, position


VARINTS: tuple[bytes, ...] = tuple(map(encode_varint, range(VARINT_TABLE_SIZE)))
