"""Writing again what was found in a log, onto itself, so that the next fsync really writes it.

After a failed fsync the kernel holds the lost pages as clean: this process, or the one before it, can read them, an
fsync says yes, and they are gone with the power (PostgreSQL's fsync trouble of 2018).
"""

from __future__ import annotations

from contextlib import suppress

from tidelog.model.ports import File
from tidelog.storage.rows import ROW_BYTES
from tidelog.storage.segment import SECTOR_BYTES, Segment

COPY_BYTES = 1 << 20


def write_again(segment: Segment, durable: int) -> None:
    """Writes all bytes from the row of sequence `durable` on again, so that the next fsync really writes them. Raises
    `OSError`."""
    slot = max(0, durable - segment.first_sequence)
    unsettled = segment.rows(max(slot, segment.body_slot))
    position = next((row.file_position for row in unsettled if row is not None), segment.log_bytes)
    _copy_onto_itself(segment.log, position, segment.log_bytes)
    _copy_onto_itself(segment.catalog, slot * ROW_BYTES, segment.slots * ROW_BYTES)


def _copy_onto_itself(file: File, position: int, end: int) -> None:
    """Rewrites the bytes from `position` to `end`. Skips sectors that cannot be read: they are damage."""
    while position < end:
        size = min(COPY_BYTES, end - position)
        try:
            _copy_piece(file, position, size)
        except UnreadableError:
            for sector in range(position, position + size, SECTOR_BYTES):
                # By sectors, since a gathered read fails for one bad sector, and the good ones beside it still have to
                # be written.
                with suppress(UnreadableError):
                    _copy_piece(file, sector, min(SECTOR_BYTES, position + size - sector))
        position += size


class UnreadableError(Exception):
    """Raised for bytes that cannot be read."""


def _copy_piece(file: File, position: int, size: int) -> None:
    """Rewrites `size` bytes at `position`. Raises `UnreadableError`, or `OSError` if they cannot be written."""
    try:
        data = file.pread(size, position)
    except OSError as error:
        raise UnreadableError from error
    if data:
        file.pwritev([data], position)
