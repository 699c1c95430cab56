"""A replica's directory: made by `tidelog log init`, or empty, and what it must remember.

    lock, format      who may use the directory (`storage.data_directory`)
    journal/          what the replica has promised and accepted, and its metainfo (`storage.slot_store`)

A directory that was initialised says: *this disk is new on purpose, and may found a log with others that are*. It holds
metainfo without a log's id. One that was not says nothing: it may be what is left of a voter's disk. Such a replica
asks the others for their log and joins it, as another voter. So a wiped disk that is started again cannot harm, and one
that is initialised in error cannot either: nobody who votes already will found a log with it
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
    """This directory cannot be what it is to be. Says why; nothing in it was changed."""


class ReplicaDirectory:
    """Belongs to this process until `close`. Blocking.

    Raises `DirectoryRefused` if something else is in it, or something that had been promised is lost; `ConfigError` if
    another process has it, or another version wrote it; `OSError`.
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
        """Gives the directory back; no flush may be under way."""
        self.store.close()
        self._lock.release()


def initialise(files: Files, clock: Clock, entropy: Entropy) -> str:
    """Makes an empty replica that may found a log; returns the incarnation of its disk. Blocking.

    Raises as `ReplicaDirectory`, and `DirectoryRefused` if there is a replica already.
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
