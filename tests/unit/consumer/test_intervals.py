"""Processed offsets above the low offset of a partition are intervals, and the metadata of a commit holds them."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from zlib import crc32

import pytest

from tidelog.consumer.intervals import INTERVALS_MAX, PREFIX, TEXT_BYTES_MAX, ProcessedOffsets, decode_processed
from tidelog.model.errors import InvalidRequest
from tidelog.model.ids import OFFSET_MAX
from tidelog.model.varint import encode_varint


def written(*numbers: int) -> str:
    """Metadata with these numbers, whatever they mean."""
    body = b"".join(map(encode_varint, numbers))
    return text_of(crc32(body).to_bytes(4) + body)


def text_of(data: bytes) -> str:
    return PREFIX + urlsafe_b64encode(data).rstrip(b"=").decode()


def test_the_low_offset_moves_when_its_gap_closes() -> None:
    processed = ProcessedOffsets(5)
    processed.add(7, 8)
    processed.add(10, 11)
    assert (processed.low, processed.intervals) == (5, [(7, 8), (10, 11)])
    processed.add(6, 7)
    assert processed.intervals == [(6, 8), (10, 11)]
    processed.add(5, 6)
    assert (processed.low, processed.intervals) == (8, [(10, 11)])
    processed.add(8, 10)
    assert (processed.low, processed.intervals) == (11, [])
    processed.add(11, 13)
    assert (processed.low, processed.intervals) == (13, [])


def test_what_is_below_the_low_offset_changes_nothing() -> None:
    processed = ProcessedOffsets(5, [(8, 9)])
    processed.add(2, 4)
    processed.add(6, 6)
    assert (processed.low, processed.intervals) == (5, [(8, 9)])
    processed.add(3, 6)
    assert (processed.low, processed.intervals) == (6, [(8, 9)])
    assert [offset for offset in range(12) if offset in processed] == [0, 1, 2, 3, 4, 5, 8]


def test_a_range_takes_in_the_intervals_that_it_covers_or_touches() -> None:
    processed = ProcessedOffsets(0, [(2, 3), (4, 5), (6, 7), (9, 10)])
    processed.add(3, 8)
    assert processed.intervals == [(2, 8), (9, 10)]
    processed.add(1, 20)
    assert processed.intervals == [(1, 20)]


def test_nothing_above_the_low_offset_is_no_metadata() -> None:
    assert ProcessedOffsets(7).encode() == ""
    assert decode_processed(7, "").intervals == []


def test_the_text_is_this_in_this_version_and_all_later_ones() -> None:
    text = ProcessedOffsets(5, [(6, 8), (9, 10), (1_000, 100_000)]).encode()
    assert text == "tidelog-processed-1:dAnUmAoCBAICvA_wigw"
    assert decode_processed(5, text).intervals == [(6, 8), (9, 10), (1_000, 100_000)]


def test_the_most_intervals_fit_in_a_commit_with_small_gaps() -> None:
    processed = ProcessedOffsets(OFFSET_MAX - 60_000, [])
    for number in range(INTERVALS_MAX):
        assert processed.fill_level(1, processed.low + 60) <= 1
        processed.add(processed.low + 1 + 2 * number, processed.low + 2 + 2 * number)
    assert processed.fill_level(1, OFFSET_MAX) > 1
    text = processed.encode()
    assert len(text) <= TEXT_BYTES_MAX
    assert decode_processed(processed.low, text).intervals == processed.intervals


def test_with_large_gaps_fewer_fit_and_the_highest_are_left_out() -> None:
    intervals = [(100_000 * number + 50_000, 100_000 * number + 100_000) for number in range(INTERVALS_MAX // 2)]
    end = intervals[-1][1]
    assert ProcessedOffsets(0, intervals[:300]).fill_level(1, end) <= 1
    processed = ProcessedOffsets(0, intervals)
    assert processed.fill_level(1, end) > 1
    text = processed.encode()
    assert len(text) <= TEXT_BYTES_MAX
    kept = decode_processed(0, text).intervals
    assert 300 < len(kept) < len(processed.intervals)
    assert kept == processed.intervals[: len(kept)]
    many = ProcessedOffsets(0, [(2 * number + 1, 2 * number + 2) for number in range(2 * INTERVALS_MAX)])
    assert decode_processed(0, many.encode()).intervals == many.intervals[:INTERVALS_MAX]


@pytest.mark.parametrize(
    ("metadata", "what"),
    [
        ("half", "another program's"),
        ("tidelog-processed-2:AAAA", "another program's"),
        (PREFIX, "checksum"),
        (PREFIX + "****", "base64url"),
        (PREFIX + "dAnUmAoCBAICvA_wig", "checksum"),
        (PREFIX + "dAnUmAoCBAICvA_xigw", "checksum"),
        (PREFIX + "é", "base64url"),
        (PREFIX + "A" * TEXT_BYTES_MAX + "A", "more than"),
        (text_of(crc32(b"\x0a\x80").to_bytes(4) + b"\x0a\x80"), "cut off"),
        (text_of(crc32(b"\xff" * 11).to_bytes(4) + b"\xff" * 11), "too large"),
        (written(6, 1, 1), "written for offset 6, and stands at 5"),
        (written(5), "no intervals"),
        (written(5, 1), "no intervals"),
        (written(5, 0, 1), "no intervals"),
        (written(5, 1, -1), "no intervals"),
        (written(5, *[1] * (2 * INTERVALS_MAX + 2)), "no intervals"),
        (written(5, 1, OFFSET_MAX), "beyond all offsets"),
    ],
)
def test_text_that_is_foreign_or_damaged_is_said_to_be(metadata: str, what: str) -> None:
    with pytest.raises(InvalidRequest, match=what):
        decode_processed(5, metadata)
