"""The directory of a standalone log's replica: made by `tidelog log init`, or empty at the first start.

    lock, format      the lock of the directory and its format version (`storage.data_directory`)
    journal/          what the replica has promised and accepted, and its metainfo (`storage.slot_store`)

A directory that was initialised says: *this disk is new on purpose, and may found a log with others that are*. Its
metainfo has no log id. An empty one says nothing: it may be what is left of a voter's disk. Such a replica
asks the others for their log and joins it as a new voter. So a wiped disk that is started again does no harm, and one
that is initialised in error does none either: no existing voter will found a log with it
(`replication.paxos.recover`).

Mesos' `initialize` makes a replica vote at once, whatever it has forgotten.
"""

from __future__ import annotations

import msgspec

from tidelog.broker.consensus.log_member import MemberMetainfo, metainfo_of
from tidelog.model.errors import InternalError
from tidelog.model.ports import Clock, Entropy, Files
from tidelog.replication.paxos.state import Metadata
from tidelog.storage.data_directory import FORMAT, LOCK, claim
from tidelog.storage.log_manager import JOURNAL, STANDALONE_LOG
from tidelog.storage.open_files import OpenFiles
from tidelog.storage.slot_store import SlotStore, StoredSlots

OPEN_FILES_MAX = 64


class DirectoryRefused(InternalError):
    """Raised if a directory cannot be used as requested; its message says why. Nothing in it was changed."""


class ReplicaDirectory:
    """The opened directory of a replica, locked for this process until `close`. Blocking.

    Raises `DirectoryRefused` if something else is in it, or promises of the replica are lost; `ConfigError` if
    another process has locked it, or another version wrote it; `OSError`.
    """

    def __init__(self, files: Files, clock: Clock, entropy: Entropy) -> None:
        strangers = sorted(set(files.list("")) - {LOCK, FORMAT, JOURNAL})
        if strangers:
            raise DirectoryRefused(f"the directory is not empty: {strangers[0]} is in it, and no replica of a log")
        self._lock = claim(files)
        try:
            self.store, self.stored = SlotStore.open(
                OpenFiles(files, OPEN_FILES_MAX),
                JOURNAL,
                STANDALONE_LOG,
                new_incarnation=entropy.token_hex(16),
                now_ms=clock.wall_ms(),
                vouches=True,
            )
            if self.stored.is_amnesiac:
                raise DirectoryRefused(f"this replica must not vote any more: {self.stored.report.findings[-1]}")
        except BaseException:
            self._lock.release()
            raise

    def close(self) -> None:
        """Closes the replica's files and unlocks the directory; no flush may be under way."""
        self.store.close()
        self._lock.release()


def initialise(files: Files, clock: Clock, entropy: Entropy) -> str:
    """Initialises a directory, so that its replica may found a log; returns the incarnation id of its disk. Blocking.

    Raises `DirectoryRefused` if something is in it, a replica included; `ConfigError` if another process has locked it,
    or another version wrote it; `OSError`.
    """
    if files.exists(JOURNAL):
        store, stored = SlotStore.look(files, JOURNAL, STANDALONE_LOG)
        store.close()
        _check_unused(stored)
    directory = ReplicaDirectory(files, clock, entropy)
    try:
        new = MemberMetainfo(0, "", Metadata(directory.store.incarnation), b"", b"")
        directory.store.store_metainfo(msgspec.msgpack.encode(new))()
        return directory.store.incarnation
    finally:
        directory.close()


def _check_unused(stored: StoredSlots) -> None:
    if stored.is_amnesiac:
        raise DirectoryRefused("what is left of a replica is in it")
    metainfo = metainfo_of(stored)
    if metainfo is not None and metainfo.cluster_id:
        raise DirectoryRefused(f"a replica of log {metainfo.cluster_id} is in it already")
    if metainfo is not None:
        raise DirectoryRefused("it is initialised already")
    if stored.slots or stored.floor is not None:
        raise DirectoryRefused("the log is not empty")
