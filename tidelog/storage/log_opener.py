"""Opening the files of a partition: its log, and its journal if it has one (`commit.protocol=paxos`).

Opening takes reads, writes and fsyncs, so a broker does it on its disk threads. A `LogOpener` from `LogManager.apart`
is used by one thread at a time and shares nothing with the open logs: it has its own cache of file handles, and nothing
else uses what it has opened until `LogManager.adopt` takes it over, on the event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tidelog.model.ids import PartitionId, TopicId
from tidelog.model.ports import Files
from tidelog.storage.directory_identity import DirectoryIdentityStore
from tidelog.storage.load_report import LoadReport
from tidelog.storage.loader import Held, load_log
from tidelog.storage.metainfo import NAMES as METAINFO_NAMES
from tidelog.storage.open_files import OpenFiles
from tidelog.storage.partition_log import LogSettings, PartitionLog
from tidelog.storage.scan import BadEnd
from tidelog.storage.slot_store import SlotStore, StoredSlots

TOPICS = "topics"
JOURNAL = "journal"
METADATA_LOG = PartitionId(TopicId("0" * 32), 0)
"""The identity of the metadata log in `metadata/`; no controller ever draws this topic id."""


@dataclass(eq=False)
class LogOpener:
    """Opens partitions' logs and Paxos journals, and keeps track of the open ones."""

    _files: Files
    _opened: OpenFiles
    _identity: Callable[[], DirectoryIdentityStore]
    _new_incarnation: Callable[[], str]
    _logs: dict[PartitionId, PartitionLog] = field(default_factory=dict, init=False)
    _journals: dict[PartitionId, SlotStore] = field(default_factory=dict, init=False)

    def open_log(
        self,
        partition_id: PartitionId,
        settings: LogSettings,
        now_ms: int,
        *,
        held: Held | None = None,
        bad_end: BadEnd = BadEnd.KEEP,
    ) -> tuple[PartitionLog, LoadReport]:
        """Opens a partition's log, or makes an empty one. `held` says since when this broker is assigned the log.
        Blocking.

        Raises `OSError` as `load_log`: the log is not open then, and others are not affected.
        """
        assert partition_id not in self._logs, f"the log of {partition_id} is open already"
        log, report = load_log(
            self._opened,
            log_directory(partition_id),
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
        """Returns the argument `held` for `open_log`: the metadata log position since which this broker is assigned the
        log, and whether the log was durably created on this disk."""
        # `held_position` is noted when all logs below it were made, durably. A log from before it that is not here is
        # lost; one from behind it may never have been made.
        return Held(since, since < self.held_position)

    @property
    def renewals(self) -> int:
        """Returns how often the broker has begun again on this directory, because it was an old copy."""
        current = self._identity().current
        return 0 if current is None else current.renewals

    @property
    def held_position(self) -> int:
        """Returns the metadata log position up to which all logs assigned to this broker were created on this disk,
        durably."""
        current = self._identity().current
        return 0 if current is None else current.held_position

    def has_log(self, partition_id: PartitionId) -> bool:
        """Returns True if there are files of this partition's log: metainfo or a segment."""
        directory = log_directory(partition_id)
        # Either is enough. A log that lost its metainfo was here all the same, and its disk may have promised and
        # acknowledged.
        return any(name in METAINFO_NAMES or name[20:] == ".log" for name in self._files.list(directory))

    def open_journal(
        self, partition_id: PartitionId, now_ms: int, *, anew: bool = False, bad_end: BadEnd = BadEnd.TRUNCATE
    ) -> tuple[SlotStore, StoredSlots]:
        """Opens the Paxos journal of a partition's replica, or makes an empty one; with `anew`, in place of one that
        has forgotten what the replica promised. It is closed and removed with the partition's log. Blocking. Raises
        `ConfigError` if the files there are no slot store, `OSError` if they cannot be opened or made."""
        self._close_journal(partition_id)
        directory = f"{log_directory(partition_id)}/{JOURNAL}"
        if anew:
            # Only where the engine id is dead: a vote under it after this would be a vote that forgot its promises.
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
        """Returns what a partition's Paxos journal holds, with the damaged entries at its end kept; None if there is no
        journal. Changes nothing on the disk. Blocking. Raises `ConfigError` if the files there are no slot store,
        `OSError` if they cannot be opened."""
        directory = f"{log_directory(partition_id)}/{JOURNAL}"
        if not self._files.exists(directory):
            return None
        # Read-only, since how to treat the bad end depends on what this look finds; an opening would truncate or keep
        # it at once.
        store, stored = SlotStore.look(self._files, directory, partition_id, bad_end=BadEnd.KEEP)
        store.close()
        return stored

    def _close_journal(self, partition_id: PartitionId, *, offline_reason: str | None = None) -> None:
        store = self._journals.pop(partition_id, None)
        if store is not None:
            if offline_reason is not None:
                # Offline, so that closing it notes nothing more.
                store.journal.take_offline(offline_reason)
            store.close()

    def hand_over(self, opened: OpenFiles) -> tuple[dict[PartitionId, PartitionLog], dict[PartitionId, SlotStore]]:
        """Returns the open logs and the open journals by partition, and moves their file handles to `opened`."""
        self._opened.join(opened)
        return self._logs, self._journals

    def abandon(self) -> None:
        """Closes what is open, after an opening failed half-way, and writes nothing more. Blocking."""
        for partition_id in list(self._journals):
            self._close_journal(partition_id, offline_reason="its replica could not be opened")
        for log in self._logs.values():
            log.take_offline("its replica could not be opened")
            log.close(log.log_start_offset)
        self._logs.clear()
        self._opened.close_all()


def log_directory(partition_id: PartitionId) -> str:
    """Returns the directory of a partition's log, below the data directory."""
    return f"{TOPICS}/{partition_id.topic_id}/{partition_id.partition}"
