"""Reading a data directory while no process uses it. Nothing in it is changed, not even the lock file.

It is a broker's data directory, or that of a standalone replicated log, which contains a journal only.

The names of topics are read from the metadata log. If that is damaged, logs are shown under the topic ids of their
directories.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tidelog.cli.terminal import CommandError
from tidelog.controller.records import MetadataRecord, TopicCreated, decode_record
from tidelog.controller.snapshot import decode_image
from tidelog.model.errors import TidelogError
from tidelog.model.ids import PartitionId, TopicId
from tidelog.storage.data_directory import LOCK, check_format
from tidelog.storage.disk_files import DiskFiles
from tidelog.storage.dump import dump_batches
from tidelog.storage.load_report import LoadReport
from tidelog.storage.log_manager import (
    JOURNAL,
    METADATA_LOG,
    SNAPSHOTS,
    STANDALONE_LOG,
    TOPICS,
    metadata_directories,
    stored_journals,
    stored_logs,
)
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.read_only import ReadOnlyFiles, open_read_only
from tidelog.storage.snapshots import SnapshotStore

METADATA_NAME = "(metadata)"
"""The displayed name of the metadata log; no topic can have this name."""
STANDALONE_NAME = "(log)"
"""The displayed name of a standalone replicated log; no topic can have this name."""


@dataclass(frozen=True, slots=True)
class StoredLog:
    """A log or journal on disk. `topic` is its topic's name; None if the metadata log does not have it."""

    files: DiskFiles
    directory: str
    identity: PartitionId
    topic: str | None

    @property
    def name(self) -> str:
        """The displayed name: the topic's name, its id, or a fixed name for logs without a topic."""
        own = {METADATA_LOG: METADATA_NAME, STANDALONE_LOG: STANDALONE_NAME}
        return own.get(self.identity) or self.topic or self.identity.topic_id

    @property
    def is_journal(self) -> bool:
        """True for a journal: the promises and accepted values of a Paxos replica, in contrast to chosen values."""
        return self.directory.rpartition("/")[2] == JOURNAL

    @property
    def has_slots(self) -> bool:
        """True for a journal or the metadata log: each of their batches is an entry of a Paxos log, stored at a
        numbered slot."""
        return self.is_journal or self.identity == METADATA_LOG

    def __str__(self) -> str:
        return f"{self.name}-{self.identity.partition}{' journal' if self.is_journal else ''}"

    def is_of(self, topic: str | None, partition: int | None) -> bool:
        """Returns True if the log belongs to this topic (name or id) and partition; None matches all."""
        return topic in (None, self.name, self.identity.topic_id) and partition in (None, self.identity.partition)

    def is_at(self, path: Path) -> bool:
        """Returns True if `path` is the log's directory, or that of the log whose journal this is."""
        where = Path(self.files.root, self.directory)
        return path == where or (self.is_journal and path == where.parent)

    def log_bytes(self) -> int:
        """The size of the log in bytes."""
        return sum(path.stat().st_size for path in Path(self.files.root, self.directory).glob("*.log"))

    @contextmanager
    def opened(self) -> Iterator[tuple[PartitionLog, LoadReport]]:
        """A context with the log, opened as at a broker's start. Raises `OSError` if it cannot be opened."""
        log, report = open_read_only(self.files, self.directory, self.identity)
        try:
            yield log, report
        finally:
            log.close(0)


@contextmanager
def stored(data_dir: str) -> Iterator[list[StoredLog]]:
    """A context with all logs of a data directory, the metadata log first, each followed by its journal. Raises
    `CommandError` if there are none or a process uses them; `ConfigError` if a newer version wrote them."""
    if not Path(data_dir).is_dir():
        raise CommandError(f"{data_dir} is no directory; --data-dir names the one that the broker keeps its data in")
    with unused(data_dir):
        files = DiskFiles(data_dir)
        check_format(files)
        identities = stored_logs(files) | stored_journals(files)
        if not identities:
            raise CommandError(
                f"{data_dir} holds no logs; --data-dir names the directory that the broker keeps its data in"
            )
        names = _topic_names(files)
        yield [
            StoredLog(files, directory, identity, names.get(identity.topic_id))
            for directory, identity in sorted(identities.items(), key=_in_order)
        ]


def _in_order(log: tuple[str, PartitionId]) -> tuple[bool, str, int, bool]:
    """Returns the sort key of a log: metadata log first, then by topic and partition, a journal after its log."""
    directory, identity = log
    return (identity != METADATA_LOG, identity.topic_id, identity.partition, directory.endswith(JOURNAL))


@contextmanager
def containing(path: str) -> Iterator[list[StoredLog]]:
    """A context with the log in the directory `path`, and its journal: DATA/topics/TOPIC-ID/PARTITION, DATA/metadata,
    or the directory of a standalone log; or a journal alone. Raises `CommandError` if there is no log or a process uses
    it; `ConfigError` if a newer version wrote it."""
    resolved = Path(path).resolve()
    data_dir = _data_dir_of(resolved)
    if data_dir is not None:
        with stored(str(data_dir)) as logs:
            matching = [log for log in logs if log.is_at(resolved)]
            if matching:
                yield matching
                return
    raise CommandError(f"{path} is not the directory of a log")


def _data_dir_of(path: Path) -> Path | None:
    if path.name in metadata_directories(DiskFiles(str(path.parent))):
        return path.parent
    if path.parent.parent.name == TOPICS:
        return path.parent.parent.parent
    if path.name == JOURNAL:
        return _data_dir_of(path.parent)
    return path if (path / JOURNAL).is_dir() else None


@contextmanager
def unused(data_dir: str) -> Iterator[None]:
    """A context that holds a shared lock, so that no broker can start meanwhile."""
    try:
        fd = os.open(Path(data_dir) / LOCK, os.O_RDONLY)
    except FileNotFoundError:
        yield
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 20, 0).decode(errors="replace").strip()
            raise CommandError(f"{data_dir} is in use by process {holder}; stop that broker first") from None
        yield
    finally:
        os.close(fd)


def _topic_names(files: DiskFiles) -> dict[TopicId, str]:
    """Returns the topic names by id, from the readable part of the metadata log, including deleted topics."""
    names: dict[TopicId, str] = {}
    with suppress(OSError, TidelogError):
        snapshot = SnapshotStore(ReadOnlyFiles(files), SNAPSHOTS).load_newest().snapshot
        if snapshot is not None:
            names |= {topic.topic_id: name for name, topic in decode_image(snapshot.body).topics.items()}
    for directory in metadata_directories(files):
        with suppress(OSError, TidelogError), StoredLog(files, directory, METADATA_LOG, None).opened() as (log, _):
            for _, payload in dump_batches(log):
                decisions = metadata_records(payload)
                names |= {TopicId(made.topic_id): made.name for made in decisions if isinstance(made, TopicCreated)}
    return names


def metadata_records(payload: bytes) -> list[MetadataRecord]:
    """Returns the records in a payload of the metadata log; none if it contains something else, such as a set of
    voters."""
    try:
        return [decode_record(line) for line in payload.split(b"\n")]
    except msgspec.DecodeError:
        return []
