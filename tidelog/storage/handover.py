"""The file that keeps the producers' states while a log drops all its segments and starts over.

The leader sends these states once. A crash between the decision to start over, which metainfo holds, and the checkpoint
of the new segment would lose them. So they are durable before that decision is, and the next opening reads them from
this file. The file counts only while metainfo says `restarts`, and is removed afterwards.
"""

from __future__ import annotations

from contextlib import closing, suppress

from tidelog.model.errors import InvalidBatch
from tidelog.model.ports import Files
from tidelog.model.producers import ProducerState
from tidelog.storage.rows import ROW_BYTES, RowCodec

HANDOVER = "producers"


def keep_handover(files: Files, directory: str, rows: bytes) -> None:
    """Stores these PRODUCER rows durably in the handover file, in place of what it had, before the log drops all its
    segments. Raises `OSError`."""
    path = f"{directory}/{HANDOVER}"
    if not rows:
        # A file of an earlier start over would speak of producers of another log.
        if files.exists(path):
            files.remove(path)
            files.sync_dir(directory)
        return
    with closing(files.open(path, create=True)) as file:
        file.truncate(0)
        file.pwritev([rows], 0)
        # Content and name are durable before metainfo says `restarts`: from then on this is the only place that has
        # them.
        file.sync()
    files.sync_dir(directory)


def read_handover(files: Files, directory: str, codec: RowCodec, rows_max: int) -> list[tuple[int, ProducerState]]:
    """Returns the producers' states in the handover file, by producer id; none if there is no such file, or if any of
    it is damaged."""
    try:
        with closing(files.open(f"{directory}/{HANDOVER}")) as file:
            return codec.parse_producers(file.pread(rows_max * ROW_BYTES, 0))
    # Damage costs the producers' states, not the log: a repeat by one that is forgotten may be appended once more, as
    # after its expiry.
    except (OSError, InvalidBatch):
        return []


def drop_handover(files: Files, directory: str) -> None:
    """Removes the file with the producers' states, which does not count any more. Best effort."""
    with suppress(OSError):
        if files.exists(f"{directory}/{HANDOVER}"):
            files.remove(f"{directory}/{HANDOVER}")
