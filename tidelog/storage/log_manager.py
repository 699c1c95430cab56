"""All logs of a data directory: the lock on it, the place of each log, and the open logs (Kafka's `LogManager`).

    lock, format                           the lock of the directory and its format version (`data_directory`)
    identity.0, identity.1                 the broker and cluster it belongs to (`directory_identity`)
    reserve                                disk space for deletions on a full disk (`reserve`)
    metadata/                              this broker's replica of the cluster's metadata log (`slot_store`)
    metadata-2/ ...                        a later replica, begun because the one before had forgotten its promises
    snapshots/                             images of the cluster metadata (`snapshots`)
    topics/<topic id>/<partition>/         a partition's log
    topics/<topic id>/<partition>/journal/ its Paxos journal, with promises and values (`commit.protocol=paxos`)
    topics/<topic id>/<partition>-removed/ a log that is being removed
    topics/<topic id>-removed/             all logs of a topic that is being removed
    topics/<topic id>/<partition>-new/     a log that is being made (`new_logs`)

No directory is ever removed because no metadata mentions it: a damaged metadata log may have forgotten it. `topic_ids`
and `partition_ids` list the directories; only those are removed that the caller sets aside. A log is renamed before its
files are removed: if this broker gets the partition again, it begins with an empty log, not with half of the old one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tidelog.model.errors import Overloaded
from tidelog.model.ids import PartitionId, TopicId
from tidelog.model.ports import Files
from tidelog.storage import new_logs
from tidelog.storage.data_directory import claim
from tidelog.storage.directory_identity import DirectoryIdentityStore
from tidelog.storage.log_opener import JOURNAL, METADATA_LOG, TOPICS, LogOpener, log_directory
from tidelog.storage.new_logs import NEW, NewLog
from tidelog.storage.open_files import OpenFiles
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.slot_store import SlotStore, StoredSlots
from tidelog.storage.snapshots import SnapshotStore

__all__ = [
    "JOURNAL",
    "METADATA",
    "METADATA_LOG",
    "REMOVED",
    "SNAPSHOTS",
    "STANDALONE_LOG",
    "TOPICS",
    "LogManager",
    "LogStatistics",
    "log_directory",
    "metadata_directories",
    "stored_journals",
    "stored_logs",
    "stored_topics",
]

METADATA = "metadata"
SNAPSHOTS = "snapshots"
REMOVED = "-removed"
NOT_HELD = "this broker holds no replica of the partition any more"
STANDALONE_LOG = PartitionId(TopicId("f" * 32), 0)
"""The identity of a standalone log (`tidelog log replica`), whose directory holds nothing but a Paxos journal."""

_TOPIC_ID = re.compile(r"[0-9a-f]{32}")
_METADATA = re.compile(rf"{METADATA}(-[0-9]{{1,6}})?")


@dataclass(frozen=True, slots=True)
class LogStatistics:
    """Counts over the open logs: logs, segments, bytes, open files, and the free bytes of the disk."""

    logs: int
    logs_offline: int
    segments: int
    log_bytes: int
    open_files: int
    free_bytes: int


class LogManager(LogOpener):
    """The logs of one process (Kafka's `LogManager`). Locks the data directory when made, unlocks it in `close`.

    Raises `ConfigError` if another process has locked it, or a newer program wrote it; `OSError` if it cannot be used.
    """

    def __init__(self, files: Files, *, open_max: int, new_incarnation: Callable[[], str]) -> None:
        # The lock before anything else: two processes on one directory would write into each other's logs.
        self._lock = claim(files)
        super().__init__(files, OpenFiles(files, open_max), lambda: self.identity, new_incarnation)
        self._opened.reserve.fill(create=True)
        self.snapshots = SnapshotStore(files, SNAPSHOTS)
        try:
            self.identity = DirectoryIdentityStore(files)
        except BaseException:
            self._lock.release()
            raise

    @property
    def logs(self) -> Mapping[PartitionId, PartitionLog]:
        """Returns the open logs, in the order of opening."""
        return self._logs

    def apart(self) -> LogOpener:
        """Returns an opener that opens the files of one partition on another thread, with a file cache of its own.
        `adopt` takes over what it has opened."""
        return LogOpener(self._files, self._opened.apart(), self._identity, self._new_incarnation)

    def adopt(self, opener: LogOpener) -> None:
        """Takes over the logs and journals that `opener`, one that `apart` returned, has opened, with their file
        handles. From then on they are among this manager's open logs."""
        logs, journals = opener.hand_over(self._opened)
        assert not logs.keys() & self._logs.keys(), "a log is opened once"
        self._logs |= logs
        self._journals |= journals

    def make_topics(self, partitions: Iterable[PartitionId]) -> None:
        """Makes the directories of these partitions' topics, durably. Blocking. Raises `OSError`."""
        new_logs.make_topics(self._files, partitions)

    def prepare(self, new: NewLog) -> bool:
        """Makes a new log's files under a temporary name; returns False if the partition has a directory already.
        Blocking. Raises `OSError`."""
        return new_logs.prepare(self._files, new, self._new_incarnation)

    def publish(self, prepared: Sequence[PartitionId], others: Iterable[PartitionId]) -> None:
        """Renames prepared new logs to their own names, durably, and makes the names of the other partitions durable as
        well. Blocking. Raises `OSError`: none of the prepared logs is there then, as far as the disk allows."""
        new_logs.publish(self._files, prepared, others)

    def note_held(self, position: int) -> None:
        """Stores durably that all logs assigned to this broker by the metadata up to `position` are created. Blocking.
        Raises `OSError`."""
        self.identity.change(held_position=position)

    def close_log(self, partition_id: PartitionId, high_watermark: int) -> None:
        """Closes one log and its journal; it can be opened again. Blocking; no flush of it may be under way. Raises
        `OSError` or `Overloaded` if metainfo could not be stored: the files are closed all the same."""
        self._close_journal(partition_id)
        self._logs.pop(partition_id).close(high_watermark)

    def holds_data(self) -> bool:
        """Returns True if this directory holds a partition's log, or a snapshot of the metadata. Blocking."""
        return any(map(self.has_log, self.partition_ids())) or bool(self._files.list(SNAPSHOTS))

    def open_slots(
        self, now_ms: int, *, anew: bool = False, incarnation: str | None = None
    ) -> tuple[SlotStore, StoredSlots]:
        """Opens the newest replica of the metadata log, or makes an empty one. With `anew`, makes one in another
        directory, and leaves the older ones as they are. A new one gets this `incarnation`, or a drawn one. Blocking.
        Raises `ConfigError` if the files there are no slot store, `OSError` if they cannot be opened or made."""
        previous = self._logs.pop(METADATA_LOG, None)
        if previous is not None:
            previous.close(previous.log_start_offset)
        directory = metadata_directories(self._files)[-1]
        # Beside the old one, not in its place: what that one still holds may be the last good copy of something.
        if anew:
            directory = f"{METADATA}-{1 + int(directory.rpartition('-')[2] if '-' in directory else 1)}"
        drawn = self._new_incarnation() if incarnation is None else incarnation
        store, stored = SlotStore.open(
            self._opened,
            directory,
            METADATA_LOG,
            new_incarnation=drawn,
            now_ms=now_ms,
            # The metadata log cannot go on behind a record that nobody can read, so whatever it has reported must never
            # pass for torn (decision 0035).
            vouches=True,
        )
        self._logs[METADATA_LOG] = store.journal
        return store, stored

    def remove_snapshots(self) -> None:
        """Removes all metadata snapshots, which were found not to belong to this cluster's metadata log. Blocking.
        Raises `OSError`."""
        self._files.remove_tree(SNAPSHOTS)

    def set_snapshots_aside(self, generation: int) -> None:
        """Renames the directory of metadata snapshots, once for each generation, so that a recovered cluster does not
        load snapshots from before its recovery. Blocking. Raises `OSError`."""
        aside = f"{SNAPSHOTS}-before-{generation}"
        # Once for a generation: `cluster recover` may be repeated, and snapshots that lie here by then are of the new
        # one.
        if self._files.exists(SNAPSHOTS) and not self._files.exists(aside):
            self._files.rename(SNAPSHOTS, aside)
            self._files.sync_dir("")

    def topic_ids(self) -> list[TopicId]:
        """Returns the topics that have a directory here, also those that no metadata knows; sorted."""
        return stored_topics(self._files)

    def close_removed(self, partition_ids: Iterable[PartitionId]) -> None:
        """Closes those of the logs that are open, before they are removed. No flush of theirs may be under way."""
        for partition_id in partition_ids:
            self._close_journal(partition_id, offline_reason=NOT_HELD)
            log = self._logs.pop(partition_id, None)
            if log is not None:
                # Offline first, so that `close` writes no metainfo: the directory goes.
                log.take_offline(NOT_HELD)
                log.close(log.log_start_offset)

    def set_topic_aside(self, topic_id: TopicId) -> str:
        """Renames a topic's directory, whose logs are not open, durably, so that nothing opens it again; returns the
        new name, for `remove_aside`. Blocking. Raises `OSError`."""
        return self._set_aside(f"{TOPICS}/{topic_id}")

    def set_partition_aside(self, partition_id: PartitionId) -> str:
        """Renames a log's directory, durably, so that nothing opens it again; returns the new name, for `remove_aside`.
        Blocking. Raises `OSError`."""
        return self._set_aside(log_directory(partition_id))

    def _set_aside(self, directory: str) -> str:
        if self._files.exists(directory):
            # Left by a removal that failed. The order can be repeated, and `rename` replaces no directory with files in
            # it.
            if self._files.exists(directory + REMOVED):
                self._files.remove_tree(directory + REMOVED)
            # The name goes first, in one step: half-removed files under the log's own name would be opened as a damaged
            # log when this broker gets the partition again.
            self._files.rename(directory, directory + REMOVED)
            self._files.sync_dir(_parent(directory))
        return directory + REMOVED

    def removals(self, directory: str) -> list[Callable[[], None]]:
        """Returns the calls that remove a renamed directory, one for each log of a topic and a last one for the
        directory itself. All are blocking."""
        names = self._files.list(directory) if _parent(directory) == TOPICS else []
        steps = [partial(self._files.remove_tree, f"{directory}/{name}") for name in names]
        return [*steps, partial(self.remove_aside, directory)]

    def remove_aside(self, directory: str) -> None:
        """Removes a renamed directory; after the last log also its topic's directory. Blocking. Raises `OSError`: some
        files may be gone then, and the others are removed at the next start."""
        self._files.remove_tree(directory)
        parent = _parent(directory)
        if parent != TOPICS:
            self._remove_if_empty(TopicId(_name(parent)))
        elif self._files.exists(TOPICS):
            self._files.sync_dir(TOPICS)

    def partition_ids(self) -> list[PartitionId]:
        """Returns the partitions that have a directory here, open or not, also those that no metadata knows.
        Blocking."""
        return [partition_id for partition_id in stored_logs(self._files).values() if partition_id != METADATA_LOG]

    def remove_leftovers(self) -> None:
        """Removes what an interrupted removal, or an interrupted making of a log, has left. Must be called before any
        log is made. Blocking. Raises `OSError`."""
        for name in self._files.list(TOPICS):
            if name.endswith(REMOVED):
                self._files.remove_tree(f"{TOPICS}/{name}")
        for topic_id in self.topic_ids():
            for name in self._files.list(f"{TOPICS}/{topic_id}"):
                if name.endswith((REMOVED, NEW)):
                    self._files.remove_tree(f"{TOPICS}/{topic_id}/{name}")
            self._remove_if_empty(topic_id)

    def _remove_if_empty(self, topic_id: TopicId) -> None:
        # A topic's directory stays as long as anything lies in it, known or not.
        if not self._files.list(f"{TOPICS}/{topic_id}") and self._files.exists(TOPICS):
            self._files.remove_tree(f"{TOPICS}/{topic_id}")
            self._files.sync_dir(TOPICS)

    def close(self, high_watermarks: Mapping[PartitionId, int]) -> list[str]:
        """Closes all logs, then unlocks the directory. Blocking; no flush may be under way.

        Returns a sentence for each log that was not closed cleanly: its next opening will check more.
        """
        findings: list[str] = []
        for partition_id in list(self._journals):
            try:
                self._close_journal(partition_id)
            except (OSError, Overloaded) as error:
                findings.append(f"the journal of partition {partition_id} was not closed cleanly: {error}")
        for partition_id, log in self._logs.items():
            try:
                log.close(high_watermarks.get(partition_id, log.log_start_offset))
            except (OSError, Overloaded) as error:
                findings.append(f"the log of partition {partition_id} was not closed cleanly: {error}")
            else:
                if log.offline_reason is not None:
                    findings.append(f"the log of partition {partition_id} was offline: {log.offline_reason}")
        self._logs.clear()
        self._opened.close_all()
        # Last: from here on another process may write.
        self._lock.release()
        return findings

    def statistics(self) -> LogStatistics:
        """Counts over the open logs. Raises `OSError` if the disk does not report its free space."""
        logs = self._logs.values()
        return LogStatistics(
            logs=len(logs),
            logs_offline=sum(log.offline_reason is not None for log in logs),
            segments=sum(len(log.segments) for log in logs),
            log_bytes=sum(log.log_bytes for log in logs),
            open_files=len(self._opened),
            free_bytes=self._files.free_bytes(),
        )


def _name(directory: str) -> str:
    return directory.rpartition("/")[2]


def _parent(directory: str) -> str:
    return directory.rpartition("/")[0]


def metadata_directories(files: Files) -> list[str]:
    """Returns the directories of metadata log replicas, the newest last; only the default path if there is none."""
    names = [name for name in files.list("") if _METADATA.fullmatch(name)]
    # By length, then by name: `metadata-10` is newer than `metadata-9`.
    return sorted(names, key=lambda name: (len(name), name)) or [METADATA]


def stored_logs(files: Files) -> dict[str, PartitionId]:
    """Returns the logs that have a directory, open or not, by directory path."""
    logs = {name: METADATA_LOG for name in metadata_directories(files) if files.exists(name)}
    for topic_id in stored_topics(files):
        for name in sorted(filter(str.isdecimal, files.list(f"{TOPICS}/{topic_id}")), key=int):
            partition_id = PartitionId(topic_id, int(name))
            logs[log_directory(partition_id)] = partition_id
    return logs


def stored_journals(files: Files) -> dict[str, PartitionId]:
    """Returns the journals of Paxos partitions, and that of a standalone log, open or not, by directory path."""
    journals = {JOURNAL: STANDALONE_LOG} if files.exists(JOURNAL) else {}
    for directory, partition_id in stored_logs(files).items():
        if partition_id != METADATA_LOG and files.exists(f"{directory}/{JOURNAL}"):
            journals[f"{directory}/{JOURNAL}"] = partition_id
    return journals


def stored_topics(files: Files) -> list[TopicId]:
    """Returns the topics that have a directory, also those that no metadata knows; sorted."""
    return [TopicId(name) for name in files.list(TOPICS) if _TOPIC_ID.fullmatch(name)]
