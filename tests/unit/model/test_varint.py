"""Zigzag varints: known bytes, edges, and refusals."""

from __future__ import annotations

import pytest

from tidelog.model.errors import InvalidBatch
from tidelog.model.varint import VARINTS, decode_varint, encode_varint

KNOWN = {
    0: "00",
    -1: "01",
    1: "02",
    63: "7e",
    -64: "7f",
    64: "8001",
    -65: "8101",
    8191: "fe7f",
    8192: "808001",
    2**31 - 1: "feffffff0f",
    -(2**31): "ffffffff0f",
    2**63 - 1: "feffffffffffffffff01",
    -(2**63): "ffffffffffffffffff01",
}


@pytest.mark.parametrize("value", KNOWN)
def test_known_bytes_both_ways(value: int) -> None:
    encoded = bytes.fromhex(KNOWN[value])
    assert encode_varint(value) == encoded
    assert decode_varint(b"?" + encoded + b"?", 1) == (value, 1 + len(encoded))


def test_the_table_is_the_encoder() -> None:
    assert list(VARINTS) == [encode_varint(value) for value in range(len(VARINTS))]
    assert {len(varint) for varint in VARINTS} == {1, 2}


@pytest.mark.parametrize("encoded", ["ffffffffffffffffff02", "80808080808080808080", "ff" * 30])
def test_more_than_64_bits_are_refused(encoded: str) -> None:
    with pytest.raises(InvalidBatch, match="64 bits"):
        decode_varint(bytes.fromhex(encoded) + b"\x01", 0)


@pytest.mark.parametrize("encoded", ["", "80", "ffff"])
def test_a_cut_varint_is_an_index_error_for_the_caller_to_name(encoded: str) -> None:
    with pytest.raises(IndexError):
        decode_varint(bytes.fromhex(encoded), 0)
