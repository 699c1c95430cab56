"""The codecs: what other clients write can be read, and no input decides how much memory is used."""

from __future__ import annotations

import gzip
import mmap
import struct
import tracemalloc

import cramjam
import pytest

from tidelog.model.batch_header import Compression
from tidelog.model.compression import compress, decompress, unpack
from tidelog.model.errors import InvalidBatch, TooLarge

CODECS = [codec for codec in Compression if codec is not Compression.NONE]
TEXT = b"".join(b'{"flight": %d, "delay": %d}' % (number, number * 7919 % 180) for number in range(6000))
BOUND = 1 << 20


def decompress_bounded(codec: Compression, data: bytes | memoryview) -> bytes:
    return decompress(codec, data, bytes_max=BOUND)


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("data", [b"", b"x", TEXT, bytes(range(256)) * 3], ids=["empty", "one", "text", "dense"])
def test_round_trip(codec: Compression, data: bytes) -> None:
    compressed = compress(codec, data)
    assert decompress_bounded(codec, compressed) == data
    assert decompress_bounded(codec, memoryview(compressed)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_text_gets_smaller(codec: Compression) -> None:
    assert len(compress(codec, TEXT)) < len(TEXT) / 2


@pytest.mark.parametrize("codec", CODECS)
def test_the_bound_is_exact(codec: Compression) -> None:
    compressed = compress(codec, TEXT)
    assert decompress(codec, compressed, bytes_max=len(TEXT)) == TEXT
    with pytest.raises(TooLarge, match=r"decompress to"):
        decompress(codec, compressed, bytes_max=len(TEXT) - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_costs_no_more_than_its_bound(codec: Compression) -> None:
    bomb = compress(codec, bytes(64 << 20))
    assert len(bomb) < 4 << 20
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            decompress_bounded(codec, bomb)
        assert tracemalloc.get_traced_memory()[1] < 3 * BOUND
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_a_full_output_is_told_from_damage(codec: Compression) -> None:
    """The text of the library's error is what tells them apart: an upgrade that changes it must fail here."""
    assert decompress_bounded(codec, compress(codec, bytes(500_000))) == bytes(500_000)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("damage", ["cut", "junk", "flipped", "empty"])
def test_damage_is_an_invalid_batch(codec: Compression, damage: str) -> None:
    compressed = compress(codec, TEXT)
    middle = len(compressed) // 2
    damaged = {
        "cut": compressed[:-9],
        "junk": b"\x00\x01junk" * 20,
        "flipped": compressed[:30] + bytes(byte ^ 0xFF for byte in compressed[30:middle]) + compressed[middle:],
        "empty": b"",
    }[damage]
    with pytest.raises(InvalidBatch, match=codec.label):
        decompress_bounded(codec, damaged)


# -- what other clients write ----------------------------------------------------------------------------------------


def test_gzip_members_and_zstd_frames_may_follow_each_other() -> None:
    assert decompress_bounded(Compression.GZIP, gzip.compress(b"a" * 99) + gzip.compress(b"b")) == b"a" * 99 + b"b"
    two = bytes(cramjam.zstd.compress(b"a" * 99)) + bytes(cramjam.zstd.compress(b"b"))
    assert decompress_bounded(Compression.ZSTD, two) == b"a" * 99 + b"b"


def test_lz4_is_written_in_independent_blocks_and_read_in_either_kind() -> None:
    independent = 0x20
    assert compress(Compression.LZ4, TEXT)[4] & independent
    linked = bytes(cramjam.lz4.compress(TEXT))
    assert not linked[4] & independent
    assert decompress_bounded(Compression.LZ4, linked) == TEXT


def test_snappy_is_written_in_xerial_blocks_of_32_kib() -> None:
    compressed = compress(Compression.SNAPPY, TEXT)
    assert compressed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    (size,) = struct.unpack_from(">i", compressed, 16)
    assert bytes(cramjam.snappy.decompress_raw(compressed[20 : 20 + size])) == TEXT[: 32 * 1024]


def test_raw_snappy_is_read() -> None:
    assert decompress_bounded(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT


@pytest.mark.parametrize("block", [b"\x00", b"\x00\x00\x00\x09abc", b"\x00\x00\x00\x00", b"\xff\xff\xff\xff\x00"])
def test_a_xerial_block_that_lies_about_its_length(block: bytes) -> None:
    with pytest.raises(InvalidBatch, match="snappy block"):
        decompress_bounded(Compression.SNAPPY, compress(Compression.SNAPPY, TEXT) + block)


def test_raw_snappy_without_a_length_is_refused() -> None:
    with pytest.raises(InvalidBatch, match="the records are not snappy"):
        decompress_bounded(Compression.SNAPPY, b"\xff\xff\xff\xff\xff\xff")


def test_a_snappy_length_is_a_claim() -> None:
    with pytest.raises(TooLarge):
        decompress_bounded(Compression.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"abc")
    with pytest.raises(InvalidBatch, match="cannot make"):
        decompress_bounded(Compression.SNAPPY, b"\x80\x80\x10" + b"abc")


def test_a_zstd_window_is_a_claim_too() -> None:
    frame = b"\x28\xb5\x2f\xfd\x00" + bytes([30 << 3]) + b"\x01\x00\x00"
    with pytest.raises(InvalidBatch, match="zstd"):
        decompress_bounded(Compression.ZSTD, frame)


@pytest.mark.parametrize("codec", CODECS)
def test_a_large_output_is_not_cleared_by_the_interpreter(codec: Compression) -> None:
    """Whoever clears sixty mebibytes with the interpreter's lock stops all other threads."""
    data = bytes(range(256)) * 20_000
    output = unpack(codec, compress(codec, data), bytes_max=64 << 20)
    assert output == data
    assert isinstance(output.obj, mmap.mmap)
    with pytest.raises(TooLarge):
        unpack(codec, compress(codec, data), bytes_max=len(data) - 1)
