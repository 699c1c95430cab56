"""Garbage collection, kept out of runs: when it happens within one must not matter to anything."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Turns garbage collection off while the context is open, and collects all garbage at its end."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
        gc.collect()  # all of it: what the run's last frames still hold would be old by the next time
