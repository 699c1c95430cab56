"""Exclusive use of a data directory: its lock, and the version of its format.

`format` holds the version of everything below. Catalog rows and metainfo have a version each, and what does not parse
counts as damage; an older program would take a newer format for damage, and "repair" it. So it refuses to start.
"""

from __future__ import annotations

from contextlib import closing

from tidelog.config.errors import ConfigError
from tidelog.model.ports import Files, Lock

LOCK = "lock"
FORMAT = "format"
FORMAT_VERSION = 1
_PREFIX = b"tidelog data "


def claim(files: Files) -> Lock:
    """Makes the data directory if it does not exist, and locks it for this process.

    Raises `ConfigError` if another process has locked it, or a newer program wrote it; `OSError` if it cannot be used.
    """
    files.make_dirs("")
    # The lock comes before the look at `format`: two new processes would both find none, and write over each other.
    lock = _take_lock(files)
    try:
        if not check_format(files):
            _write_format(files)
    except BaseException:
        lock.release()
        raise
    return lock


def check_format(files: Files) -> bool:
    """Returns True if the data has the format version of this program; False if no version is noted, as in a new
    directory.

    Raises `ConfigError` if a newer program wrote it.
    """
    version = _read_format(files)
    # Newer rows do not parse here. A loader would take them for damage, and write over them what it can make of the
    # log.
    if version > FORMAT_VERSION:
        raise ConfigError(
            f"the data directory has format {version}, written by a newer tidelog; this one reads format "
            f"{FORMAT_VERSION}: upgrade it, or choose another directory with --data-dir (log.dir)"
        )
    return version == FORMAT_VERSION


def _take_lock(files: Files) -> Lock:
    try:
        return files.lock(LOCK)
    except BlockingIOError as error:
        raise ConfigError(
            f"the data directory is in use: {error.filename} is {error.strerror}; "
            "stop that process, or choose another directory with --data-dir (log.dir)"
        ) from None


def _read_format(files: Files) -> int:
    """Returns the version in the file `format`; 0 if there is no such file, or it is damaged, since one bad sector must
    not make all logs unusable."""
    if not files.exists(FORMAT):
        return 0
    try:
        with closing(files.open(FORMAT)) as file:
            content = file.pread(100, 0)
    except OSError:
        return 0
    digits = content.removeprefix(_PREFIX).strip()
    return int(digits) if content.startswith(_PREFIX) and digits.isdigit() else 0


def _write_format(files: Files) -> None:
    temporary = f"{FORMAT}.new"
    with closing(files.open(temporary, create=True)) as file:
        file.truncate(0)
        file.pwritev([_PREFIX, b"%d\n" % FORMAT_VERSION], 0)
        file.sync()
    # Renamed when its bytes are durable, so that no crash leaves an empty `format`, nor half a number in it.
    files.rename(temporary, FORMAT)
    files.sync_dir("")
