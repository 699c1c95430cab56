"""All logs of a data directory: who may use it, where each log lives, which are open (Kafka's `LogManager`).

    lock, format                           who may use the directory (`data_directory`)
    identity.0, identity.1                 of which cluster and broker it is (`directory_identity`)
    reserve                                space for emptying a full disk (`reserve`)
    metadata/                              this broker's replica of the cluster's metadata log (`slot_store`)
    metadata-2/ ...                        the same, begun anew because the one before forgot what it had promised
    snapshots/                             images of the cluster, each the sum of a stretch of that log (`snapshots`)
    topics/<topic id>/<partition>/         one log
    topics/<topic id>/<partition>/journal/ what this replica has promised and accepted (`commit.protocol=paxos`)
    topics/<topic id>/<partition>-removed/ what is left of one that is being removed

Nothing is ever removed because it is unknown: a directory that no metadata mentions may be what a damaged metadata log
forgot. `topic_ids` and `partition_ids` list what is there, and only `remove_topic` and `remove_partition`, orders,
remove. A log goes by its name first: whoever gets the partition again begins with nothing, not with half a log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tidelog.model.errors import Overloaded
from tidelog.model.ids import PartitionId, TopicId
from tidelog.model.ports import Files
from tidelog.storage.data_directory import claim
from tidelog.storage.directory_identity import DirectoryIdentityStore
from tidelog.storage.load_report import LoadReport
from tidelog.storage.loader import Held, load_log
from tidelog.storage.metainfo import NAMES as METAINFO_NAMES
from tidelog.storage.open_files import OpenFiles
from tidelog.storage.partition_log import LogSettings, PartitionLog
from tidelog.storage.scan import BadEnd
from tidelog.storage.slot_store import SlotStore, StoredSlots
from tidelog.storage.snapshots import SnapshotStore

TOPICS = "topics"
METADATA = "metadata"
SNAPSHOTS = "snapshots"
REMOVED = "-removed"
JOURNAL = "journal"
METADATA_LOG = PartitionId(TopicId("0" * 32), 0)
"""The identity of the log in `metadata/`; no controller ever draws this topic id."""
STANDALONE_LOG = PartitionId(TopicId("f" * 32), 0)
"""The identity of a log by itself (`tidelog log replica`), whose directory holds nothing but a journal."""

_TOPIC_ID = re.compile(r"[0-9a-f]{32}")
_METADATA = re.compile(rf"{METADATA}(-[0-9]{{1,6}})?")


@dataclass(frozen=True, slots=True)
class LogStatistics:
    """What the open logs amount to."""

    logs: int
    logs_offline: int
    segments: int
    log_bytes: int
    open_files: int
    free_bytes: int


class LogManager:
    """The logs of one process. Takes the directory's lock when made, gives it back in `close`.

    Raises as `data_directory.claim`.
    """

    def __init__(self, files: Files, *, open_max: int, new_incarnation: Callable[[], str]) -> None:
        self._lock = claim(files)
        self._files = files
        self._opened = OpenFiles(files, open_max)
        self._opened.reserve.fill(create=True)
        self._new_incarnation = new_incarnation
        self._logs: dict[PartitionId, PartitionLog] = {}
        self._journals: dict[PartitionId, SlotStore] = {}
        self.snapshots = SnapshotStore(files, SNAPSHOTS)
        try:
            self.identity = DirectoryIdentityStore(files)
        except BaseException:
            self._lock.release()
            raise

    @property
    def logs(self) -> Mapping[PartitionId, PartitionLog]:
        """The open logs, in the order of opening."""
        return self._logs

    def open_log(
        self,
        partition_id: PartitionId,
        settings: LogSettings,
        now_ms: int,
        *,
        directory: str | None = None,
        held: Held | None = None,
        bad_end: BadEnd = BadEnd.KEEP,
    ) -> tuple[PartitionLog, LoadReport]:
        """Opens a log, or makes an empty one, at `directory` or where the partition's logs live; `held` tells that
        there should be one. Blocking.

        Raises `OSError` as `load_log`; the log is not open then, and others are not affected.
        """
        assert partition_id not in self._logs, f"the log of {partition_id} is open already"
        log, report = load_log(
            self._opened,
            directory or log_directory(partition_id),
            partition_id,
            settings,
            new_incarnation=self._new_incarnation(),
            now_ms=now_ms,
            held=held,
            bad_end=bad_end,
        )
        self._logs[partition_id] = log
        return log, report

    def held(self, since: int) -> Held:
        """Tells of a log that this disk is to hold since a position of the metadata log."""
        return Held(since, since < self.held_position)

    @property
    def renewals(self) -> int:
        """How often the broker has begun anew on this directory, which was an old copy then."""
        return 0 if self.identity.current is None else self.identity.current.renewals

    @property
    def held_position(self) -> int:
        """Up to this position of the metadata log, this disk has made all logs that it was to hold, durably."""
        return 0 if self.identity.current is None else self.identity.current.held_position

    def note_held(self, position: int) -> None:
        """Notes durably that all logs that this disk is to hold by the metadata up to `position` are made. Blocking.
        Raises `OSError`."""
        self.identity.change(held_position=position)

    def close_log(self, partition_id: PartitionId, high_watermark: int) -> None:
        """Closes one log, which can be opened again then. Blocking; no flush of it may be under way. Raises as
        `PartitionLog.close`."""
        self._close_journal(partition_id)
        self._logs.pop(partition_id).close(high_watermark)

    def has_log(self, partition_id: PartitionId) -> bool:
        """Was a log of this partition ever made on this disk, as far as can be seen?"""
        directory = log_directory(partition_id)
        return any(name in METAINFO_NAMES or name[20:] == ".log" for name in self._files.list(directory))

    def open_journal(
        self, partition_id: PartitionId, now_ms: int, *, anew: bool = False, bad_end: BadEnd = BadEnd.TRUNCATE
    ) -> tuple[SlotStore, StoredSlots]:
        """Opens the journal of a partition's replica, or makes an empty one; `anew`, in place of one that has forgotten
        what it had promised. It is closed and removed with the partition's log. Blocking. Raises as `SlotStore.open`.
        """
        self._close_journal(partition_id)
        directory = f"{log_directory(partition_id)}/{JOURNAL}"
        if anew:
            self._files.remove_tree(directory)
        store, stored = SlotStore.open(
            self._opened,
            directory,
            partition_id,
            new_incarnation=self._new_incarnation(),
            now_ms=now_ms,
            bad_end=bad_end,
        )
        self._journals[partition_id] = store
        return store, stored

    def look_at_journal(self, partition_id: PartitionId) -> StoredSlots | None:
        """Returns what a partition's journal gives back if its bad end is kept; None if there is no journal. Nothing on
        the disk is changed. Blocking. Raises as `SlotStore.open`."""
        directory = f"{log_directory(partition_id)}/{JOURNAL}"
        if not self._files.exists(directory):
            return None
        store, stored = SlotStore.look(self._files, directory, partition_id, bad_end=BadEnd.KEEP)
        store.close()
        return stored

    def _close_journal(self, partition_id: PartitionId, *, offline_reason: str | None = None) -> None:
        store = self._journals.pop(partition_id, None)
        if store is not None:
            if offline_reason is not None:
                store.journal.take_offline(offline_reason)
            store.close()

    def holds_data(self) -> bool:
        """Returns True if a log of a partition, or a snapshot of the metadata, was ever written here. Blocking."""
        return any(map(self.has_log, self.partition_ids())) or bool(self._files.list(SNAPSHOTS))

    def open_slots(
        self, now_ms: int, *, anew: bool = False, incarnation: str | None = None
    ) -> tuple[SlotStore, StoredSlots]:
        """Opens the newest replica of the metadata log, or makes an empty one; `anew`, one beside those that are there,
        which stay as they are. A new one has this `incarnation`, or draws one. Blocking. Raises as `SlotStore.open`."""
        previous = self._logs.pop(METADATA_LOG, None)
        if previous is not None:
            previous.close(previous.log_start_offset)
        directory = metadata_directories(self._files)[-1]
        if anew:
            directory = f"{METADATA}-{1 + int(directory.rpartition('-')[2] if '-' in directory else 1)}"
        drawn = self._new_incarnation() if incarnation is None else incarnation
        store, stored = SlotStore.open(
            self._opened,
            directory,
            METADATA_LOG,
            new_incarnation=drawn,
            now_ms=now_ms,
            vouches=True,
        )
        self._logs[METADATA_LOG] = store.journal
        return store, stored

    def remove_snapshots(self) -> None:
        """Removes all snapshots: they are found to be of something else. Blocking. Raises `OSError`."""
        self._files.remove_tree(SNAPSHOTS)

    def set_snapshots_aside(self, generation: int) -> None:
        """Gives the snapshots another name, under which nobody takes them for those of this generation. Blocking.
        Raises `OSError`."""
        aside = f"{SNAPSHOTS}-before-{generation}"
        if self._files.exists(SNAPSHOTS) and not self._files.exists(aside):
            self._files.rename(SNAPSHOTS, aside)
            self._files.sync_dir("")

    def topic_ids(self) -> list[TopicId]:
        """Topics that have a directory here, known to anybody or not; sorted."""
        return stored_topics(self._files)

    def remove_topic(self, topic_id: TopicId) -> None:
        """Removes all logs of a topic, durably. Blocking; no flush of theirs may be under way.

        Raises `OSError`; some files may be gone then, and the order can be repeated.
        """
        for partition_id in [known for known in self._logs if known.topic_id == topic_id]:
            self._close_journal(partition_id, offline_reason="its topic was deleted")
            log = self._logs.pop(partition_id)
            log.take_offline("its topic was deleted")
            log.close(log.log_start_offset)
        self._files.remove_tree(f"{TOPICS}/{topic_id}")
        if self._files.exists(TOPICS):
            self._files.sync_dir(TOPICS)

    def partition_ids(self) -> list[PartitionId]:
        """Partitions that have a directory here, open or not, known to anybody or not. Blocking."""
        return [known for known in stored_logs(self._files).values() if known != METADATA_LOG]

    def remove_partition(self, partition_id: PartitionId) -> None:
        """Removes one log, durably; what a power cut leaves of it is no log any more. Blocking; no flush of it may be
        under way.

        Raises `OSError`; some files may be gone then, and the order can be repeated.
        """
        self._close_journal(partition_id, offline_reason="this broker holds no replica of the partition any more")
        log = self._logs.pop(partition_id, None)
        if log is not None:
            log.take_offline("this broker holds no replica of the partition any more")
            log.close(log.log_start_offset)
        directory = log_directory(partition_id)
        if self._files.exists(directory):
            self._files.remove_tree(directory + REMOVED)
            self._files.rename(directory, directory + REMOVED)
            self._files.sync_dir(_parent(directory))
        self._files.remove_tree(directory + REMOVED)
        self._remove_if_empty(partition_id.topic_id)

    def remove_leftovers(self) -> None:
        """Removes what an interrupted removal has left. Blocking. Raises `OSError`."""
        for topic_id in self.topic_ids():
            for name in self._files.list(f"{TOPICS}/{topic_id}"):
                if name.endswith(REMOVED):
                    self._files.remove_tree(f"{TOPICS}/{topic_id}/{name}")
            self._remove_if_empty(topic_id)

    def _remove_if_empty(self, topic_id: TopicId) -> None:
        if not self._files.list(f"{TOPICS}/{topic_id}") and self._files.exists(TOPICS):
            self._files.remove_tree(f"{TOPICS}/{topic_id}")
            self._files.sync_dir(TOPICS)

    def close(self, high_watermarks: Mapping[PartitionId, int]) -> list[str]:
        """Closes all logs, then gives the directory back. Blocking; no flush may be under way.

        Returns a sentence for each log that could not be closed cleanly: its next opening will check more.
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
        self._lock.release()
        return findings

    def statistics(self) -> LogStatistics:
        """Counts over the open logs. Raises `OSError` if the disk does not say how much is free."""
        logs = self._logs.values()
        return LogStatistics(
            logs=len(logs),
            logs_offline=sum(log.offline_reason is not None for log in logs),
            segments=sum(len(log.segments) for log in logs),
            log_bytes=sum(log.log_bytes for log in logs),
            open_files=len(self._opened),
            free_bytes=self._files.free_bytes(),
        )


def log_directory(partition_id: PartitionId) -> str:
    """Where a partition's log lives below the data directory."""
    return f"{TOPICS}/{partition_id.topic_id}/{partition_id.partition}"


def _parent(directory: str) -> str:
    return directory.rpartition("/")[0]


def metadata_directories(files: Files) -> list[str]:
    """Where replicas of the metadata log live, the newest last; the first one's path if there is none."""
    names = [name for name in files.list("") if _METADATA.fullmatch(name)]
    return sorted(names, key=lambda name: (len(name), name)) or [METADATA]


def stored_logs(files: Files) -> dict[str, PartitionId]:
    """The logs that have a directory, by directory, whether a manager has them open or not."""
    found = {name: METADATA_LOG for name in metadata_directories(files) if files.exists(name)}
    for topic_id in stored_topics(files):
        for name in sorted(filter(str.isdecimal, files.list(f"{TOPICS}/{topic_id}")), key=int):
            partition_id = PartitionId(topic_id, int(name))
            found[log_directory(partition_id)] = partition_id
    return found


def stored_journals(files: Files) -> dict[str, PartitionId]:
    """The journals of Paxos partitions, and that of a log by itself, by directory; as `stored_logs`."""
    found = {JOURNAL: STANDALONE_LOG} if files.exists(JOURNAL) else {}
    for directory, partition_id in stored_logs(files).items():
        if partition_id != METADATA_LOG and files.exists(f"{directory}/{JOURNAL}"):
            found[f"{directory}/{JOURNAL}"] = partition_id
    return found


def stored_topics(files: Files) -> list[TopicId]:
    """Topics that have a directory, known to anybody or not; sorted."""
    return [TopicId(name) for name in files.list(TOPICS) if _TOPIC_ID.fullmatch(name)]
