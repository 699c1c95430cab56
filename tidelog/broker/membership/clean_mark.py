"""The *clean mark*: a file with the broker epoch, by which a broker shows that it was shut down cleanly.

It is written when everything is flushed, and removed durably before the next process registers: a process that
registers with it has on its disk everything that the broker ever acknowledged.
"""

from __future__ import annotations

from tidelog.model.ports import Files

CLEAN_MARK = "clean"


def take_clean_mark(files: Files) -> int:
    """Returns the broker epoch under which the last process shut down cleanly, -1 if it did not. The mark is removed
    durably when this returns. Blocking. Raises `OSError`."""
    if not files.exists(CLEAN_MARK):
        return -1
    file = files.open(CLEAN_MARK)
    try:
        content = file.pread(32, 0).strip()
    except OSError:
        content = b""
    finally:
        file.close()
    files.remove(CLEAN_MARK)
    files.sync_dir("")
    return int(content) if content.isdigit() else -1


def leave_clean_mark(files: Files, epoch: int) -> None:
    """Writes the clean mark, after everything was flushed. Blocking. Raises `OSError`."""
    file = files.open(CLEAN_MARK, create=True)
    try:
        file.truncate(0)
        file.pwritev([b"%d\n" % epoch], 0)
        file.sync()
    finally:
        file.close()
    files.sync_dir("")
