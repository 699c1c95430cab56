"""A little space set aside, so that a full disk can be emptied: deleting a prefix begins with writing a row.

The reserve is given up when such a row finds no room, and taken back when deleted files have made some.
"""

from __future__ import annotations

from contextlib import suppress

from tidelog.model.ports import Files

RESERVE = "reserve"
RESERVE_BYTES = 65_536


class Reserve:
    """The file of that size. Best effort: without it nothing is lost, but a full disk may need an operator."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def fill(self, *, create: bool = False) -> None:
        """Takes the space, if there is any. Not durable: it is the space that counts, not the file."""
        with suppress(OSError):
            file = self._files.open(RESERVE, create=create)
            try:
                missing = RESERVE_BYTES - file.size()
                if missing > 0:
                    file.pwritev([bytes(missing)], file.size())  # a hole would take no space
            finally:
                file.close()

    def spend(self) -> bool:
        """Gives the space up; False if there was none to give."""
        try:
            file = self._files.open(RESERVE)
            try:
                had_any = file.size() > 0
                file.truncate(0)
            finally:
                file.close()
        except OSError:
            return False
        return had_any
