"""Zeroed buffers to be filled: a bytearray, or for large sizes a memory mapping, which the system clears page by page
when touched.

Python clears a bytearray at once, and holds the interpreter's lock meanwhile: sixty mebibytes, with a page fault for
every four kibibytes of them, keep every other thread for 35 ms. Huge pages fault once for two mebibytes: to map, fill
and free as much takes 8 ms, without the lock if the code that fills it does not hold it.

A mapping ends with a huge page that is never touched, and so takes no memory. Without it Linux joins mappings that
touch, and a thread that maps the next one waits, with the interpreter's lock, for another thread's page fault in this
one: 5 ms on two busy cores, and fifteen of these waits are a long turn of the event loop.
"""

from __future__ import annotations

import mmap  # determinism: for memory of no file
from contextlib import suppress
from typing import Final

CLEARED_BYTES_MAX: Final = 1 << 20
HUGE_PAGES: Final = getattr(mmap, "MADV_HUGEPAGE", None)
HUGE_PAGE_BYTES: Final = 2 << 20
"""Size of a huge page on x86-64, and by default on ARM. Linux aligns a mapping of whole huge pages to them."""


def fresh_memory(size: int) -> memoryview:
    """Returns a writable buffer of `size` zeros, which is freed with the last view of it. Raises `OSError` or
    `MemoryError` where the system has none."""
    if size <= CLEARED_BYTES_MAX:
        return memoryview(bytearray(size))
    filled = -(-size // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
    pages = mmap.mmap(-1, filled + HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if HUGE_PAGES is not None:
        with suppress(OSError):  # a kernel without them
            pages.madvise(HUGE_PAGES, 0, filled)
    return memoryview(pages)[:size]
