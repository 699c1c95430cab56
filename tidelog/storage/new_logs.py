"""Making the files of new, empty logs, many at a time.

A new log is made under a temporary name, `<partition>-new`, and renamed when all of it is durable. So after a crash no
half-made log is taken for a log, or for the rest of a lost one; and one fsync of each topic's directory makes the names
of many logs durable. A log takes three fsyncs of files (its catalog, and metainfo twice) and one of its own directory;
the journal of a Paxos replica, which is made along with it, as many.

The files are, byte for byte, what the loader would make in an empty directory. The loader opens them afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from typing import NamedTuple

from msgspec import UNSET, UnsetType

from tidelog.model.ids import PartitionId
from tidelog.model.ports import Files
from tidelog.storage.log_opener import JOURNAL, TOPICS, log_directory
from tidelog.storage.metainfo import Metainfo, MetainfoStore
from tidelog.storage.rows import NO_TIMESTAMP, RowCodec, Tail

NEW = "-new"
"""Suffix of the directory name of a log that is being made."""


class NewLog(NamedTuple):
    """A log to be made."""

    partition_id: PartitionId
    metainfo: Callable[[str], bytes] | None = None
    """Returns the metainfo of a Paxos replica for the incarnation of its journal; None for a log without a journal."""


def prepare(files: Files, new: NewLog, new_incarnation: Callable[[], str]) -> bool:
    """Makes a log's files under the temporary name. Returns False if the log has a directory already, which only the
    loader can judge. The topic's directory must exist. Blocking. Raises `OSError`."""
    # Whatever is there may be a log, or the rest of a lost one, and only the loader tells these apart.
    if files.exists(log_directory(new.partition_id)):
        return False
    directory = log_directory(new.partition_id) + NEW
    # A crash left it half made; nothing ever refers to a log under this name.
    files.remove_tree(directory)
    files.make_dir(directory)
    if new.metainfo is not None:
        journal, incarnation = f"{directory}/{JOURNAL}", new_incarnation()
        files.make_dir(journal)
        # The journal is durable before the log beside it: a log without a journal proves that a journal was lost.
        _write(files, journal, new.partition_id, incarnation, new.metainfo(incarnation))
    _write(files, directory, new.partition_id, new_incarnation(), UNSET)
    return True


def _write(files: Files, directory: str, identity: PartitionId, incarnation: str, replica: bytes | UnsetType) -> None:
    # Sequence 0 and no rows before it, as of a log that the loader makes in an empty directory: both must read alike.
    header = RowCodec(identity).checkpoint(Tail(0, 0, 0, 0, 0, NO_TIMESTAMP, 0), (), ())
    files.open(f"{directory}/{0:020}.log", create=True).close()
    with closing(files.open(f"{directory}/{0:020}.catalog", create=True)) as catalog:
        catalog.pwritev(header, 0)
        # The `.log` is empty: it has no bytes to sync, and its name is synced with the directory.
        catalog.sync()
    metainfo = Metainfo(incarnation=incarnation, durable_sequence=len(header), replica=replica)
    # Last, after the catalog: metainfo without segments means a lost log.
    MetainfoStore(files, directory, identity).begin(metainfo)
    files.sync_dir(directory)


def make_topics(files: Files, partitions: Iterable[PartitionId]) -> None:
    """Makes the directories of these partitions' topics, durably. Blocking. Raises `OSError`."""
    for topic_id in _topics(partitions):
        files.make_dirs(f"{TOPICS}/{topic_id}")


def publish(files: Files, prepared: Sequence[PartitionId], others: Iterable[PartitionId] = ()) -> None:
    """Renames prepared logs to their own names, and fsyncs their topics' directories, and those of `others`, whose
    names a crash may have kept from becoming durable. Blocking. Raises `OSError`: none of the prepared logs is there
    then, as far as the disk allows."""
    try:
        for partition_id in prepared:
            # All content is durable by now, so a crash among the renames leaves each log whole or not there.
            files.rename(log_directory(partition_id) + NEW, log_directory(partition_id))
        for topic_id in _topics((*prepared, *others)):
            files.sync_dir(f"{TOPICS}/{topic_id}")
    except OSError:
        for partition_id in prepared:
            with suppress(OSError):
                # A log whose name is not durable must not be opened: it could be gone after the next power cut, with
                # all that it has acknowledged.
                files.remove_tree(log_directory(partition_id))
        raise


def _topics(partitions: Iterable[PartitionId]) -> list[str]:
    return list(dict.fromkeys(partition_id.topic_id for partition_id in partitions))
