"""TLS is handed the bytes in their order, small buffers joined, and no more in one turn than its share."""

from __future__ import annotations

import random

import pytest

from tidelog.adapters.tls_frames import RECORD_BYTES, TURN_BYTES, records
from tidelog.model.ports import Buffer


def test_small_buffers_share_a_record_and_large_ones_stay_as_they_are() -> None:
    large = bytes(RECORD_BYTES)
    turn, rest = records([b"a", b"", memoryview(b"bc"), large, b"d", b"e"], TURN_BYTES)
    assert turn == [b"abc", large, b"de"]
    assert turn[1] is large
    assert rest == []


def test_what_is_beyond_the_turn_is_left_and_a_buffer_across_its_end_is_cut() -> None:
    large = random.Random(1).randbytes(TURN_BYTES)
    turn, rest = records([b"head", large, b"tail"], TURN_BYTES)
    assert turn == [b"head", large[:-4]]
    assert rest == [large[-4:], b"tail"]


@pytest.mark.parametrize("seed", range(20))
def test_the_bytes_are_the_same_in_any_division(seed: int) -> None:
    drawn = random.Random(seed)
    sizes = [0, 1, 4, 100, RECORD_BYTES - 1, RECORD_BYTES, RECORD_BYTES + 1, 100_000]
    buffers: list[Buffer] = [drawn.randbytes(drawn.choice(sizes)) for _ in range(drawn.randrange(30))]
    size = drawn.choice([5_000, RECORD_BYTES, 50_000, TURN_BYTES])
    whole = b"".join(buffers)
    sent, waiting = b"", buffers
    turns = 0
    while waiting:
        turn, waiting = records(waiting, size)
        assert sum(map(len, turn)) <= size
        sent += b"".join(turn)
        turns += 1
    assert sent == whole
    assert turns <= len(whole) // size + 1
