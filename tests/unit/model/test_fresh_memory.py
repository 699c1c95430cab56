"""Buffers to be filled: zeros, writable, and not cleared by the interpreter where they are large."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path

import pytest

from tidelog.model.fresh_memory import CLEARED_BYTES_MAX, fresh_memory


@pytest.mark.parametrize("size", [0, 1, CLEARED_BYTES_MAX, CLEARED_BYTES_MAX + 1, 5_000_001])
def test_memory_is_as_large_as_asked_and_all_zeros(size: int) -> None:
    memory = fresh_memory(size)
    assert (len(memory), memory.readonly, memory.format) == (size, False, "B")
    assert not any(memory)
    memory[:] = b"\xff" * size
    assert bytes(memory[-1:]) == b"\xff" * bool(size)


def test_a_system_without_huge_pages_has_memory_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.model.fresh_memory.HUGE_PAGES", None)
    assert len(fresh_memory(CLEARED_BYTES_MAX + 1)) == CLEARED_BYTES_MAX + 1


def test_large_memory_is_mapped() -> None:
    assert isinstance(fresh_memory(CLEARED_BYTES_MAX).obj, bytearray)
    assert isinstance(fresh_memory(CLEARED_BYTES_MAX + 1).obj, mmap.mmap)


def test_a_part_keeps_the_whole_alive() -> None:
    memory = fresh_memory(CLEARED_BYTES_MAX + 1)
    part = memory[5:7]
    del memory
    part[:] = b"ab"
    assert bytes(part) == b"ab"


def test_mappings_are_not_joined_by_the_system() -> None:
    """Else whoever maps waits for another thread's page fault in the mapping beside it."""
    kept = [fresh_memory(8 << 20) for _ in range(4)]
    begins = [ctypes.addressof(ctypes.c_char.from_buffer(memory)) for memory in kept]
    areas = [line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines()]
    found = [next(low for low, high in areas if int(low, 16) <= begin < int(high, 16)) for begin in begins]
    assert len(set(found)) == len(kept)
