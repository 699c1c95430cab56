"""Buffers to be filled: zeros, writable, and not cleared by the interpreter where they are large."""

from __future__ import annotations

import mmap

import pytest

from tidelog.model.fresh_memory import CLEARED_BYTES_MAX, fresh_memory


@pytest.mark.parametrize("size", [0, 1, CLEARED_BYTES_MAX, CLEARED_BYTES_MAX + 1, 5_000_001])
def test_memory_is_as_large_as_asked_and_all_zeros(size: int) -> None:
    memory = fresh_memory(size)
    assert (len(memory), memory.readonly, memory.format) == (size, False, "B")
    assert not any(memory)
    memory[:] = b"\xff" * size
    assert bytes(memory[-1:]) == b"\xff" * bool(size)


def test_large_memory_is_mapped() -> None:
    assert isinstance(fresh_memory(CLEARED_BYTES_MAX).obj, bytearray)
    assert isinstance(fresh_memory(CLEARED_BYTES_MAX + 1).obj, mmap.mmap)


def test_a_part_keeps_the_whole_alive() -> None:
    memory = fresh_memory(CLEARED_BYTES_MAX + 1)
    part = memory[5:7]
    del memory
    part[:] = b"ab"
    assert bytes(part) == b"ab"
