"""Disk space held in reserve, so that records can be deleted on a full disk: a deletion begins with writing a row.

The reserve is released when such a row finds no space, and filled again when deleted files have made some.
"""

from __future__ import annotations

from contextlib import closing, suppress

from tidelog.model.ports import Files

RESERVE = "reserve"
RESERVE_BYTES = 65_536


class Reserve:
    """A file of `RESERVE_BYTES` that can be emptied to make space. Best effort: without it no data is lost, but a full
    disk may need an operator."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def fill(self, *, create: bool = False) -> None:
        """Fills the reserve file up, if the disk has space. Not durable: only the space counts."""
        with suppress(OSError), closing(self._files.open(RESERVE, create=create)) as file:
            missing = RESERVE_BYTES - file.size()
            if missing > 0:
                file.pwritev([bytes(missing)], file.size())  # a hole would take no space

    def spend(self) -> bool:
        """Empties the reserve file. Returns False if it was empty or missing."""
        try:
            with closing(self._files.open(RESERVE)) as file:
                had_any = file.size() > 0
                file.truncate(0)
        except OSError:
            return False
        return had_any
