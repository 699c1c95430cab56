"""The identity of a data directory: whose it is, and of which cluster, apart from the metadata log.

The metadata log knows all of this better, as long as it is there. If it is lost, the identity is what keeps a broker
from founding another cluster over the data of its own. So it is written, durably, before a broker takes part in a
cluster for the first time: before the metadata log may hold anything that others count on.

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
    """The identity as it is stored. Later versions add facts; a reader passes over those that it does not know."""

    cluster_id: str
    node_id: int
    storage: str
    """The incarnation of the metadata log's disk with which the broker last took part."""
    founds: bool = False
    """True if that disk was to found the cluster. As long as it is the same and holds nothing, nothing was founded."""
    generation: int = 0
    """How often the cluster's metadata log was begun anew by an operator."""
    recovery_id: str = ""
    """The id of the last of these recoveries (`ClusterRecovery`); empty if there was none."""
    starts: int = 0
    """How often a process has begun to take part from this directory, counted before it registers; 0 if that is not
    known, since the identity had to be made again."""
    stamp: int = 0
    """A count that rises every few seconds while a process lives, before it tells its cluster."""
    is_old: bool = False
    """True if the cluster knows of a later `starts` or `stamp`: this is an old copy of the broker's directory, and the
    broker is to begin anew on it."""
    renewals: int = 0
    """How often the broker has begun anew here. What its journals promised before counts no more."""
    held_position: int = 0
    """The position of the metadata log up to which all logs that the broker was to hold were made here, durably: one of
    them that is not here is lost."""


class DirectoryIdentityStore:
    """The identity of one data directory, read when made; `settle` before it is written. Raises as `TwoCopyStore`."""

    def __init__(self, files: Files) -> None:
        self._copies = TwoCopyStore(files, "", IDENTITY_NAMES, DirectoryIdentity, magic=MAGIC)
        self._loaded = self._copies.load()
        self.current: DirectoryIdentity | None = None if self._loaded is None else self._loaded.info
        """The identity as it was last stored; None if there is none, or both copies are lost."""
        # The second copy is begun when the first is durable: without it, nothing was ever stored.
        self.is_lost = self._loaded is None and files.exists(IDENTITY_NAMES[1])
        """True if there was one, and both copies are lost."""

    def settle(self) -> None:
        """Makes what was found durable in both copies: it may be in one alone, or in the page cache, as of a process
        that died while it wrote. Blocking. Raises `OSError`."""
        if self._loaded is not None and self._loaded.bad_copies:
            self._copies.store(self._loaded.info)
        else:
            # A process that was killed may have left this in the page cache only. The broker is about to tell others of
            # it, and a power cut must not take back what they have heard.
            self._copies.write_again()

    def store(self, identity: DirectoryIdentity) -> None:
        """Makes this the identity, durably. Blocking. Raises `OSError`; either may then be found at the next start."""
        # `current` follows the disk. If this fails, either may be found at the next start; the process goes on with the
        # old one.
        self._copies.store(identity)
        self.current = identity

    @property
    def given(self) -> DirectoryIdentity:
        """Returns the identity, which the directory must have by now."""
        assert self.current is not None, "a directory gets its identity first"
        return self.current

    def count_start(self) -> None:
        """Counts a start, as `change`."""
        # Durable before the registration that tells it: the cluster refuses any directory that knows of fewer starts,
        # and must never have heard of one that this disk could forget.
        self.change(starts=self.given.starts + 1)

    def count_stamp(self) -> None:
        """Counts a stamp, as `change`."""
        self.change(stamp=self.given.stamp + 1)

    def mend(self) -> int:
        """Looks at both copies as `TwoCopyStore.mend`, which says what it returns; 0 for a directory without an
        identity. Blocking. Raises as there."""
        return 0 if self.current is None else self._copies.mend(self.current)

    def count_bad(self) -> int:
        """Returns how many copies cannot be used; 0 for a directory that never had an identity. Raises as there."""
        return 0 if self.current is None and not self.is_lost else self._copies.count_bad()

    def change(self, **facts: Any) -> None:
        """Replaces some facts, as `store`. The directory must have an identity."""
        self.store(msgspec.structs.replace(self.given, **facts))
