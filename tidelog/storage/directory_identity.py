"""The identity of a data directory: the broker and the cluster that it belongs to, stored apart from the metadata log.

The metadata log has all of this, too. If that log is lost, the identity keeps a broker from founding another cluster
over the data of its own. So it is written, durably, before a broker takes part in a cluster for the first time: before
the metadata log may hold anything that others count on.

It lies in the root of the data directory in two copies (`two_copies`).
"""

from __future__ import annotations

from typing import Any

import msgspec

from tidelog.model.ports import Files
from tidelog.storage.two_copies import TwoCopyStore

IDENTITY_NAMES = ("identity.0", "identity.1")
MAGIC = 0x7D16


class DirectoryIdentity(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stored identity of a data directory. Later versions may add fields, which older ones ignore."""

    cluster_id: str
    node_id: int
    storage: str
    """The incarnation id of the metadata log's disk with which the broker last took part in its cluster."""
    founds: bool = False
    """True if the disk named by `storage` was to found the cluster. If it still holds nothing, no cluster was
    founded."""
    generation: int = 0
    """Number of recoveries of the cluster's metadata log by an operator (`cluster recover`)."""
    recovery_id: str = ""
    """Id of the last recovery (`ClusterRecovery`); empty if there was none."""
    starts: int = 0
    """Number of broker processes that were started on this directory, counted before each registers; 0 if it is not
    known, since the identity was lost and written again."""
    stamp: int = 0
    """A counter that rises every few seconds while a broker process runs; stored before it is reported to the
    cluster."""
    is_old: bool = False
    """True if the cluster has heard of a higher `starts` or `stamp`: this is an old copy of the broker's directory, and
    the broker has to begin again on it as a new one."""
    renewals: int = 0
    """Number of times that the broker began again on this directory as on a new one. What the Paxos journals promised
    before does not count."""
    held_position: int = 0
    """The metadata log position up to which every partition log assigned to this broker was created on this disk,
    durably. If one of these logs is not there, it is lost."""


class DirectoryIdentityStore:
    """Loads the identity of one data directory when it is made, and stores it. `settle` has to be called before the
    first store. Raises `Overloaded` or `PermissionError` if a copy cannot be opened for these reasons, which do not
    mean that it is lost."""

    def __init__(self, files: Files) -> None:
        self._copies = TwoCopyStore(files, "", IDENTITY_NAMES, DirectoryIdentity, magic=MAGIC)
        self._loaded = self._copies.load()
        self.current: DirectoryIdentity | None = None if self._loaded is None else self._loaded.info
        """The identity as last stored; None if none was stored, or both copies are lost."""
        # The second copy is begun when the first is durable: without it, nothing was ever stored.
        self.is_lost = self._loaded is None and files.exists(IDENTITY_NAMES[1])
        """True if an identity was stored, and both copies are lost."""

    def settle(self) -> None:
        """Makes the identity that was loaded durable in both copies: a process that died while it wrote may have left
        it in one copy only, or in the page cache. Blocking. Raises `OSError`."""
        if self._loaded is not None and self._loaded.bad_copies:
            self._copies.store(self._loaded.info)
        else:
            # A process that was killed may have left this in the page cache only. The broker is about to tell others of
            # it, and a power cut must not take back what they have heard.
            self._copies.write_again()

    def store(self, identity: DirectoryIdentity) -> None:
        """Stores this identity durably. Blocking. Raises `OSError`: the old or the new one may be found at the next
        start."""
        # `current` follows the disk. If this fails, either may be found at the next start; the process goes on with the
        # old one.
        self._copies.store(identity)
        self.current = identity

    @property
    def given(self) -> DirectoryIdentity:
        """Returns the identity. One must have been stored."""
        assert self.current is not None, "a directory gets its identity first"
        return self.current

    def count_start(self) -> None:
        """Adds one to the number of broker processes started on this directory (`DirectoryIdentity.starts`), durably.
        Raises `OSError`."""
        # Durable before the registration that tells it: the cluster refuses any directory that knows of fewer starts,
        # and must never have heard of one that this disk could forget.
        self.change(starts=self.given.starts + 1)

    def count_stamp(self) -> None:
        """Adds one to the directory's time mark (`DirectoryIdentity.stamp`), durably. Raises `OSError`."""
        self.change(stamp=self.given.stamp + 1)

    def mend(self) -> int:
        """Reads both copies, and writes a bad or older one again from the other. Returns the number of bad copies; 0
        for a directory without an identity. Blocking. Raises `Overloaded` or `PermissionError` if a copy cannot be
        opened for these reasons, `OSError` if a write fails."""
        return 0 if self.current is None else self._copies.mend(self.current)

    def count_bad(self) -> int:
        """Returns the number of copies that are damaged; 0 for a directory that never had an identity. Raises
        `Overloaded` or `PermissionError` if a copy cannot be opened for these reasons, which do not mean that it is
        lost."""
        return 0 if self.current is None and not self.is_lost else self._copies.count_bad()

    def change(self, **facts: Any) -> None:
        """Stores the identity with these fields replaced, durably. One must have been stored. Raises `OSError`."""
        self.store(msgspec.structs.replace(self.given, **facts))
