"""Overwriting dropped batches with zeros, before their space is given back.

Where a file system does not journal data (ext4 with `data=writeback`), a power cut may show old blocks in the place
of a write that it lost. An old batch there is as sound as any, and if its row is lost as well, nothing else tells it
from one that was written and kept: two branches of a log would be mixed in one. Zeros are no batch.
"""

from __future__ import annotations

from tidelog.model.ports import File

CHUNK_BYTES = 1 << 20


def wipe(file: File, position: int) -> None:
    """Overwrites everything from `position` on with zeros, durably. Blocking. Raises `OSError`."""
    end = file.size()
    if position >= end:
        return
    zeros = memoryview(bytes(min(CHUNK_BYTES, end - position)))
    while position < end:
        file.pwritev([zeros[: end - position]], position)
        position += len(zeros)
    # Durable before the space is given back: the zeros have to be what an old block shows.
    file.sync()
