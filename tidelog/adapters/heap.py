"""Memory settings of a server process: freed buffers stay with the process, and garbage collections are rare.

A server's large buffers, bodies of requests and frames between brokers, come and go all the time. The C library, by its
defaults, soon returns them to the system, and the next ones are made of pages that the kernel has to find, clear and
map: 256 faults a mebibyte, which cost more than the copy that fills them, and in a virtual machine several times as
much. So up to `KEPT_BYTES` of free memory stay with the process.

Records come and go by the thousand. Counting references frees them; to look for cycles among them after every 700 new
ones, as Python does by default, takes a consumer a quarter of its time.
"""

from __future__ import annotations

import ctypes
import gc
import sys

KEPT_BYTES = 128 << 20
"""Bytes of free memory at the end of the heap that are not returned to the system. A broker that is idle after a busy
time holds that much more."""
_MAPPED_BYTES_MIN = 32 << 20
"""Size from which blocks are mapped one by one, as by default: the largest that glibc permits."""
_COLLECTION_THRESHOLDS = (20_000, 50, 50)
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h


def keep_freed_memory() -> bool:
    """Makes the C library keep freed memory in this process from now on. Returns False if it cannot, since it is not
    glibc."""
    if sys.platform != "linux":
        return False
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is None:
        return False
    # The threshold for mapping has to be raised as well: mapped blocks go back to the system when they are freed,
    # whatever is kept of the heap.
    options = ((_M_MMAP_THRESHOLD, _MAPPED_BYTES_MIN), (_M_TRIM_THRESHOLD, KEPT_BYTES))
    return all(set_option(option, value) for option, value in options)


def collect_seldom() -> None:
    """Makes garbage collections in this process rarer from now on."""
    gc.set_threshold(*_COLLECTION_THRESHOLDS)
