"""The four codecs a batch's records may be compressed with, and a bound on what comes out.

A few kilobytes of zstd can stand for gigabytes of zeros, and the sizes that compressed data claims are claims.
So decompression writes into a buffer of our own that grows only as real output fills it, and stops at the caller's
bound: the memory that is touched stays within eight times what was actually produced, or sent.

All codecs work without the interpreter's lock, so another thread may have it meanwhile; copying what came out would
take the lock, so `unpack` copies nothing.

Snappy has no frames of its own in Kafka: the Java client's library (xerial) puts blocks of 32 KiB behind a 16-byte
header, other clients send one raw block. Both are read, the first is written. LZ4 frames are written with independent
blocks, the only kind that the Java client reads.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from types import ModuleType

import cramjam

from tidelog.model.batch_header import Compression
from tidelog.model.errors import InvalidBatch, TooLarge
from tidelog.model.fresh_memory import fresh_memory
from tidelog.model.ports import Buffer

GZIP_LEVEL = 6
LZ4_LEVEL = 1
ZSTD_LEVEL = 3

_GROWTH = 8
_OUTPUT_BYTES_MIN = 4096
_OUTPUT_BYTES_GROWN = 1 << 20
"""Output size in bytes from which a buffer is at once made as large as the limit for the output (`bytes_max`), since
untouched pages of `fresh_memory` cost nothing."""
_OUTPUT_FULL = "failed to write whole buffer"
"""Text in the error of Rust's standard library, and so of cramjam, if an output buffer is full. A unit test checks
it."""

_STREAMED: dict[Compression, ModuleType] = {
    Compression.GZIP: cramjam.gzip,
    Compression.LZ4: cramjam.lz4,
    Compression.ZSTD: cramjam.zstd,
}
_SNAPPY_RATIO_MAX = 22  # its densest element: three bytes that stand for 64
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, lowest version that can read it
_XERIAL_BLOCK_BYTES = 32 * 1024
_BLOCK_LENGTH = struct.Struct(">i")


def compress(codec: Compression, data: bytes) -> bytes:
    """Returns `data` compressed as one block of the codec. The same input always gives the same bytes."""
    match codec:
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            return bytes(cramjam.gzip.compress(data, level=GZIP_LEVEL))
        case Compression.SNAPPY:
            return b"".join(_xerial_parts(memoryview(data)))
        case Compression.LZ4:
            compressor = cramjam.lz4.Compressor(level=LZ4_LEVEL, content_checksum=False, block_linked=False)
            compressor.compress(data)
            return bytes(compressor.finish())
        case Compression.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=ZSTD_LEVEL))


def decompress(codec: Compression, data: Buffer, *, bytes_max: int) -> bytes:
    """Returns the decompressed data, whichever Kafka client compressed it.

    Raises `InvalidBatch` if `data` is not valid for `codec`, `TooLarge` if more than `bytes_max` bytes come out;
    neither after allocating more than the bound.
    """
    return bytes(unpack(codec, data, bytes_max=bytes_max))


def unpack(codec: Compression, data: Buffer, *, bytes_max: int) -> memoryview:
    """Decompresses as `decompress` does, but returns a view of the output; uncompressed data is returned as it is."""
    match codec:
        case Compression.NONE:
            return memoryview(data)
        case Compression.SNAPPY:
            return _unpack_snappy(memoryview(data), bytes_max)
        case _:
            return _unpack_streamed(codec, data, bytes_max)


def _unpack_streamed(codec: Compression, data: Buffer, bytes_max: int) -> memoryview:
    size = min(bytes_max, max(_OUTPUT_BYTES_MIN, _GROWTH * len(data)))
    while True:
        output = fresh_memory(size)
        try:
            count = _STREAMED[codec].decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if _OUTPUT_FULL not in str(error):
                raise InvalidBatch(f"the records are not {codec.label}: {error}") from None
            if size == bytes_max:
                raise TooLarge(f"the records decompress to more than {bytes_max} bytes") from None
            size = bytes_max if size >= _OUTPUT_BYTES_GROWN else min(bytes_max, _GROWTH * size)
        else:
            return output[:count]


def _xerial_parts(data: memoryview) -> Iterator[bytes]:
    yield _XERIAL_HEADER
    for position in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[position : position + _XERIAL_BLOCK_BYTES]))
        yield _BLOCK_LENGTH.pack(len(block))
        yield block


def _unpack_snappy(data: memoryview, bytes_max: int) -> memoryview:
    blocks = _snappy_blocks(data) if data[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC else [data]
    sizes: list[int] = []
    room = bytes_max
    for block in blocks:
        sizes.append(_snappy_size(block, room))
        room -= sizes[-1]
    output = fresh_memory(bytes_max - room)
    position = 0
    for block, size in zip(blocks, sizes, strict=True):
        try:
            cramjam.snappy.decompress_raw_into(block, output[position : position + size])
        except cramjam.DecompressionError as error:
            raise InvalidBatch(f"the records are not snappy: {error}") from None
        position += size
    return output


def _snappy_blocks(data: memoryview) -> list[memoryview]:
    blocks = []
    position = len(_XERIAL_HEADER)
    while position < len(data):
        if position + _BLOCK_LENGTH.size > len(data):
            raise InvalidBatch("a snappy block length is cut short")
        (length,) = _BLOCK_LENGTH.unpack_from(data, position)
        position += _BLOCK_LENGTH.size
        if not 0 < length <= len(data) - position:
            raise InvalidBatch(f"a snappy block of {length} bytes, where {len(data) - position} are left")
        blocks.append(data[position : position + length])
        position += length
    return blocks


def _snappy_size(block: memoryview, bytes_max: int) -> int:
    """Returns the decompressed size that a raw snappy block declares. Raises `TooLarge` or `InvalidBatch` if it cannot
    be right, before memory is allocated."""
    try:
        size = cramjam.snappy.decompress_raw_len(block)
    except cramjam.DecompressionError as error:
        raise InvalidBatch(f"the records are not snappy: {error}") from None
    if size > bytes_max:
        raise TooLarge(f"the records decompress to {size} bytes, and only {bytes_max} may come")
    if size > _SNAPPY_RATIO_MAX * len(block):
        raise InvalidBatch(f"snappy cannot make {size} bytes of {len(block)}")
    return int(size)
